import torch

from gnnperf.nn.network import TypedLayer, mean_message


def test_mean_of_messages_by_hand() -> None:
    messages = torch.tensor([[1.0, 2.0], [3.0, 4.0], [10.0, 20.0]])
    found = mean_message(messages, torch.tensor([2, 2, 0]), 4)
    assert found.tolist() == [[10.0, 20.0], [0.0, 0.0], [2.0, 3.0], [0.0, 0.0]]


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
