"""The page of a server with several models, which come into memory by the first question."""

from __future__ import annotations

from tests.page.conftest import Open
from tests.page.models import speaker
from tests.serve.asking import listening
from tests.serve.hosting import Scripted, hosting_api


def test_a_model_that_was_never_loaded_is_asked_and_then_known(open_page: Open) -> None:
    models = [
        Scripted(name, make=lambda text=text: speaker("hi", text)) for name, text in (("a", "hello"), ("b", "12"))
    ]  # type: ignore[misc]
    with hosting_api(*models, memory=15) as api, listening(api.app) as url:
        visit = open_page(url)
        visit.at("#send:enabled").wait_for()
        assert visit.at("#model option").all_text_contents() == ["a", "b"]
        assert "known once the model is loaded" in visit.at("#draft-note").inner_text()
        assert visit.ask("hi") == "hello"
        visit.at("#modes input[value=lossless]:checked").wait_for(state="attached")
        assert "known once" not in visit.at("#draft-note").inner_text()
        visit.at("#clear").click()
        assert visit.ask("hi") == "hello"
        assert "2 of 2 layers" in visit.at(".foot").inner_text()
        visit.at("#clear").click()
        visit.at("#model").select_option("b")
        assert visit.ask("hi") == "12"
        assert [(body["model"], body["offramp"].get("mode")) for body in visit.bodies()] == [
            ("a", None),
            ("a", "lossless"),
            ("b", None),
        ]
