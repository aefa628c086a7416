"""Every statement of the hot paths finds its rows by an index, in tables of any size."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ninelives.stores.postgres import PostgresStore
from ninelives.stores.postgres.server.address import parse
from ninelives.stores.postgres.server.open_connection import Connection, connect
from ninelives.stores.postgres.server.queries import Values, statements
from tests.servers import plans
from tests.servers.postgres import change, shared_url

SIZES = (2_000, 100_000)
SCHEMA = "test_plans"


@pytest.fixture(scope="module")
def schema() -> Iterator[str]:
    """Yield the name of a schema that is dropped afterwards."""
    yield SCHEMA
    change(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.fixture(scope="module")
def small_and_large(schema: str) -> list[dict[str, int]]:
    """Return the pages that each statement touches in a small store and in a larger one."""
    return [pages for _, _, pages in plans.grown(f"{shared_url()}?schema={schema}", SIZES)]


@pytest.fixture(scope="module")
def untuned(schema: str, small_and_large: list[dict[str, int]]) -> Iterator[Connection]:
    """Yield a connection to the filled store without our own preference for indexes."""
    PostgresStore(f"{shared_url()}?schema={schema}").close()
    connection, _ = connect(parse(f"{shared_url()}?schema={schema}"))
    connection.execute("RESET ALL")
    plans.fill(connection, schema, range(SIZES[-1] // plans.RECORDS_EACH + 1, 20_001), each=1)
    connection.execute(f"ANALYZE {schema}.runs, {schema}.records".encode())
    yield connection
    connection.close()


@pytest.mark.parametrize("name", [name for name, _ in plans.STATEMENTS])
def test_a_plan_made_for_an_empty_store_touches_no_more_pages_in_a_large_one(
    small_and_large: list[dict[str, int]], name: str
) -> None:
    small, large = small_and_large
    assert large[name] <= small[name] + plans.PAGES_MORE


@pytest.mark.parametrize(("name", "values"), plans.STATEMENTS, ids=[name for name, _ in plans.STATEMENTS])
def test_the_planner_itself_chooses_an_index(
    untuned: Connection, schema: str, name: str, values: Values
) -> None:
    statement = statements(schema)[name]
    untuned.execute("DEALLOCATE ALL")
    plans.prepare(untuned, statement)
    found = list(plans.nodes_in(plans.plan_of(untuned, statement, values)))
    walked = {one["Relation Name"] for one in found if one["Node Type"] == "Seq Scan"}
    assert not walked & {"runs", "records"}, found
