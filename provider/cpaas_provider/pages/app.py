"""The routes of the pages, all of them behind Airflow's login."""

# No postponed annotations: FastAPI evaluates the annotations of the routes, which refer to local names.
import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response

from cpaas_provider.database.activity.progress import CAMPAIGN, CONTACT_SYNC
from cpaas_provider.database.database import Database
from cpaas_provider.hooks._account.options import BudgetOptions
from cpaas_provider.pages import activity, details, over_time, search
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import LazyDatabase, PageRoute, Pages, TaskStates, check_text, fail
from cpaas_provider.pages.campaigns import BadQuestionError, Filter, read_key
from cpaas_provider.pages.html.rendering import FOLDER
from cpaas_provider.pages.summaries import Summaries
from cpaas_provider.tasks.airflow.task_states import read_task_states

_STATIC = {"pages.css": "text/css", "pages.js": "text/javascript"}


def add_pages(
    app: FastAPI,
    viewer: Callable[..., Viewer],
    database: Callable[[], Database] | None = None,
    task_states: TaskStates = read_task_states,
    default_region: Callable[[str], str | None] = lambda conn_id: None,
    budget_options: Callable[[str], BudgetOptions | None] = lambda conn_id: None,
) -> FastAPI:
    """Add the pages to an application that is mounted under a path, and return it.

    :param app: the receiver, which gives every response the headers that keep it out of caches
    :param viewer: the dependency that returns the viewer, or rejects the request
    :param database: returns the database; default: the configured one
    :param task_states: returns Airflow's states of task instances, by one query
    :param default_region: returns the region of a connection's national numbers, by which the search reads them
    :param budget_options: returns the budget of a connection
    """
    configured = LazyDatabase()
    get_database = database or configured
    pages = Pages(get_database, Summaries(get_database), task_states, default_region, budget_options)
    app_lifespan = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(served: Any) -> AsyncIterator[Any]:
        async with app_lifespan(served) as state:
            yield state
        pages.summaries.close()
        configured.close()

    app.router.lifespan_context = lifespan
    app.include_router(_routes(viewer, pages))
    return app


def _routes(viewer: Callable[..., Viewer], pages: Pages) -> APIRouter:
    router = APIRouter(include_in_schema=False, route_class=PageRoute)
    User = Annotated[Viewer, Depends(viewer)]  # noqa: N806 - a type
    ListFilter = Annotated[Filter, Depends(read_filter)]  # noqa: N806 - likewise

    @router.get("/static/{name}", dependencies=[Depends(viewer)])
    def static(name: str) -> Response:
        if name not in _STATIC:
            return JSONResponse({"detail": "Not found."}, 404)
        # The browser checks for a new version each time, so that it sees files of a new release at once.
        headers = {"Cache-Control": "no-cache"}
        return FileResponse(FOLDER / "static" / name, media_type=_STATIC[name], headers=headers)

    @router.get("/", dependencies=[Depends(viewer)])
    def index(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/campaigns")

    @router.get("/campaigns")
    def campaigns(request: Request, user: User, wanted: ListFilter) -> Response:
        return activity.list_page(pages, request, user, wanted, CAMPAIGN)

    @router.get("/campaigns/{reference:path}")
    def campaign(request: Request, reference: str, user: User) -> Response:
        return details.campaign_page(pages, request, user, reference)

    @router.get("/over-time")
    def campaigns_over_time(request: Request, user: User, wanted: ListFilter) -> Response:
        """Show campaigns by day and by network, or the same as JSON with `Accept: application/json`."""
        return over_time.over_time_page(pages, request, user, wanted)

    @router.get("/deliveries")
    def deliveries(
        request: Request,
        user: User,
        references: Annotated[list[str], Query(alias="campaign")] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """Show what a task sent, or its delivery counts as JSON with `Accept: application/json`."""
        return details.deliveries_page(pages, request, user, references)

    @router.get("/search")
    def ask(request: Request, user: User) -> Response:
        return search.search_page(pages, request, user, None)

    # By POST, because URLs appear in logs and browser histories, and a recipient must not.
    @router.post("/search")
    async def find(request: Request, user: User) -> Response:
        asked = await search.read_question(request)
        if asked is None:
            return fail(request, 422, "Not a valid request", "The form cannot be read.")
        return await asyncio.to_thread(search.search_page, pages, request, user, asked)

    @router.get("/contact-syncs")
    def contact_syncs(request: Request, user: User, wanted: ListFilter) -> Response:
        return activity.list_page(pages, request, user, wanted, CONTACT_SYNC)

    @router.get("/contact-syncs/{reference:path}")
    def contact_sync(request: Request, reference: str, user: User) -> Response:
        return details.contact_sync_page(pages, request, user, reference)

    @router.get("/passcodes")
    def passcodes(request: Request, user: User, days: str = "7") -> Response:
        return activity.passcodes_page(pages, request, user, days)

    @router.get("/airtime")
    def airtime(request: Request, user: User, days: str = "30", before: str = "") -> Response:
        return activity.airtime_page(pages, request, user, days, before)

    @router.get("/reports")
    def reports(request: Request, user: User) -> Response:
        return activity.reports_page(pages, request, user)

    return router


def read_filter(conn_id: str = "", dag_id: str = "", first: str = "", last: str = "", before: str = "") -> Filter:
    """Return the filter of a list, from the parameters of a request.

    :raises BadQuestionError: when a parameter cannot be used
    """
    check_text(conn_id, dag_id, first, last, before)
    try:
        return Filter(
            conn_id or None,
            dag_id or None,
            date.fromisoformat(first) if first else None,
            date.fromisoformat(last) if last else None,
            read_key(before) if before else None,
        )
    except ValueError:
        raise BadQuestionError("A date or the place in the list is not valid.") from None
