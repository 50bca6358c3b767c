"""The file of pipelines that `offramp serve` takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.errors import InvalidRequestError
from offramp.yaml_file import read_mapping

if TYPE_CHECKING:
    from offramp.collaborate.pipeline.spec import PipelineSpec

PARAM = "pipelines"


def read_pipeline_file(path: Path, models: Mapping[str, str]) -> list[PipelineSpec]:
    """The pipelines of a file, over served models, each name with the model's first; paths are from its folder.

    A file whose name ends with .json is read as JSON, any other one as YAML. Raises InvalidRequestError naming file,
    pipeline and option.
    """
    from offramp.collaborate.pipeline.spec import HINT, check_names, read_pipelines

    content = _of_json(path) if path.suffix == ".json" else read_mapping(path, hint=HINT, param=PARAM)
    try:
        specs = read_pipelines(content, path.parent)
        check_names(specs, models)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error.message}", hint=error.hint, param=PARAM) from None
    return specs


def _of_json(path: Path) -> dict[str, object]:
    """JSON's own errors are clearer, and its tabs and surrogate pairs are nothing that the YAML reader takes."""
    from offramp.collaborate.pipeline.spec import HINT
    from offramp.serve.strict_json import parse_object

    try:
        return parse_object(path.read_bytes())
    except OSError as error:
        message = f"can't read {path}: {error.strerror}"
        raise InvalidRequestError(message, hint=HINT, param=PARAM) from error
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{path}: {error.message}", hint=HINT, param=PARAM) from None
