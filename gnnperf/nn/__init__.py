"""The network: analytic priors with fitted coefficients and a message-passing residual."""
