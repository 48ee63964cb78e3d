"""The page of the catalogue contains all ready queries as they are."""

from queries.catalogue.catalogue import CATALOGUE
from tests.documents.blocks import blocks_of, commands_of
from tests.documents.catalogue_page import PAGE, page_text


def test_the_page_is_made_from_the_catalogue() -> None:
    assert PAGE.read_text("utf-8") == page_text(), "run python -m tests.documents.catalogue_page"


def test_every_ready_query_has_a_command_with_an_output() -> None:
    commands = [command for block in blocks_of(PAGE) if block.language == "console" for command in commands_of(block)]
    for name in CATALOGUE:
        shown = [command for command in commands if f"@{name}" in command.text.split()]
        assert shown
        assert all(command.output and not command.output.startswith("no rows") for command in shown)
