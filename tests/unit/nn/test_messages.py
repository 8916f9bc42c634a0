"""Messages against a sum by hand."""

import torch

from gnnperf.nn.network import TypedLayer


def test_a_layer_adds_each_relation_by_its_own_weights() -> None:
    torch.manual_seed(0)
    layer = TypedLayer(4, edges=True, dropout=0.0).eval()
    h = torch.randn(3, 4)
    edges, kinds = torch.tensor([[0, 1, 0], [2, 2, 1]]), torch.tensor([1, 1, 3])
    z = layer.norm(h)
    expected = h + layer.own(z)
    expected[2] += layer.relations[1](z[:2]).mean(0)
    expected[1] += layer.relations[3](z[0])
    assert torch.allclose(layer(h, edges, kinds), expected, atol=1e-6)
