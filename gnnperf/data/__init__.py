"""Measured data: kernel tables, importers of public layouts, model graphs, splits, datasets."""
