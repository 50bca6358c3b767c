"""Which prompts need the big model, said before anybody answers."""

from __future__ import annotations

from collections.abc import Mapping

from offramp.collaborate.router.coin import fit_coin, read_coin
from offramp.collaborate.router.factors import fit_factors, read_factors
from offramp.collaborate.router.kind import Kind
from offramp.collaborate.router.knn import fit_knn, read_knn
from offramp.collaborate.router.linear import fit_linear, read_linear
from offramp.collaborate.router.mlp import fit_mlp, read_mlp

ROUTERS: Mapping[str, Kind] = {
    "random": Kind(fit=fit_coin, read=read_coin),
    "knn": Kind(fit=fit_knn, read=read_knn, grid=[{"neighbours": k} for k in (5, 20, 80)]),
    "linear": Kind(fit=fit_linear, read=read_linear, grid=[{"penalty": p} for p in (0.1, 0.3, 1.0, 3.0)]),
    "mlp": Kind(fit=fit_mlp, read=read_mlp, grid=[{"decay": d} for d in (0.1, 1.0)]),
    "factors": Kind(fit=fit_factors, read=read_factors, grid=[{"decay": d} for d in (0.1, 1.0)]),
}
"""By name; `random` is what the others have to beat."""
