"""What an implementation changes in a prior: effects of its own and of its kind of library.

An implementation that a device left out alone has is at least of a kind (Triton, TensorRT-LLM,
CUTLASS, ...) that other devices have as well.
"""

import torch
from torch import Tensor, nn

from gnnperf.features import TECHNOLOGIES
from gnnperf.nn.inputs import Inputs


class LibraryEffects(nn.Module):
    """Factors by name, log scale, for every implementation and every kind of library."""

    technologies: Tensor
    spreads: Tensor

    def __init__(self, spreads: dict[str, float], technologies: tuple[int, ...]) -> None:
        """Effects start at none.

        Args:
            spreads: Name of each factor and the standard deviation of its logarithm.
            technologies: For each implementation its place in `features.TECHNOLOGIES`, or -1.
        """
        super().__init__()
        self.names = tuple(spreads)
        self.register_buffer("spreads", torch.tensor(list(spreads.values())), persistent=False)
        places = torch.tensor((*technologies, -1))
        self.register_buffer("technologies", places, persistent=False)
        self.variant = nn.Parameter(torch.zeros(len(technologies) + 1, len(spreads)))
        self.technology = nn.Parameter(torch.zeros(len(TECHNOLOGIES) + 1, len(spreads)))

    def forward(self, x: Inputs) -> dict[str, Tensor]:
        """[n] factor by name; 1 for what is not known."""
        of_kind = self.technologies[x.variant]
        total = torch.where((x.variant >= 0).unsqueeze(1), self.variant[x.variant], 0.0)
        total = total + torch.where((of_kind >= 0).unsqueeze(1), self.technology[of_kind], 0.0)
        return {name: total[:, i].exp() for i, name in enumerate(self.names)}

    def penalty(self) -> Tensor:
        """Squared effects in standard deviations."""
        squares = [(table / self.spreads) ** 2 for table in (self.variant, self.technology)]
        return torch.cat(squares).sum()
