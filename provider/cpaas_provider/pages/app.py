"""The routes of the pages, all of them behind Airflow's login."""

# No postponed annotations: FastAPI evaluates the annotations of the routes, which refer to local names.
import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import date
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, FastAPI, Query
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response

from cpaas_provider.database.database import Database
from cpaas_provider.pages import activity, campaigns, details, legacy, search
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import REFRESH, BadQuestionError, LazyDatabase, Pages, check_text, will_change
from cpaas_provider.pages.campaigns import Filter
from cpaas_provider.pages.html.rendering import FOLDER
from cpaas_provider.pages.summaries import Summaries

_STATIC = {"pages.css": "text/css", "pages.js": "text/javascript"}


def add_pages(app: FastAPI, viewer: Callable[..., Viewer], database: Callable[[], Database] | None = None) -> FastAPI:
    """Add the pages to an application that is mounted under a path, and return it.

    :param viewer: the dependency that returns the viewer, or rejects the request
    :param database: returns the database; default: the configured one
    """
    configured = LazyDatabase()
    get_database = database or configured
    pages = Pages(get_database, Summaries(get_database))
    app_lifespan = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(served: Any) -> AsyncIterator[Any]:
        async with app_lifespan(served) as state:
            yield state
        pages.summaries.close()
        configured.close()

    app.router.lifespan_context = lifespan
    _add_static(app, viewer)
    _add_campaigns(app, viewer, pages)
    _add_deliveries(app, viewer, pages)
    _add_search(app, viewer, pages)
    _add_activity(app, viewer, pages)
    return app


def _add_static(app: FastAPI, viewer: Callable[..., Viewer]) -> None:
    @app.get("/static/{name}", dependencies=[Depends(viewer)], include_in_schema=False)
    def static(name: str) -> Response:
        if name not in _STATIC:
            return JSONResponse({"detail": "Not found."}, 404)
        # The browser checks for a new version each time, so that it sees files of a new release at once.
        headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        return FileResponse(FOLDER / "static" / name, media_type=_STATIC[name], headers=headers)

    @app.get("/", dependencies=[Depends(viewer)], include_in_schema=False)
    def index(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '')}/campaigns")


def _add_campaigns(app: FastAPI, viewer: Callable[..., Viewer], pages: Pages) -> None:
    @app.get("/campaigns", include_in_schema=False)
    def list_campaigns(
        request: Request,
        user: Annotated[Viewer, Depends(viewer)],
        conn_id: str = "",
        dag_id: str = "",
        first: str = "",
        last: str = "",
        before: str = "",
    ) -> Response:
        def make() -> Response:
            wanted = read_filter(conn_id, dag_id, first, last, before)
            with pages.reading() as connection:
                places = campaigns.known_places(connection)
                dag_ids = user.readable(places)
                rows = campaigns.list_rows(connection, dag_ids, wanted)
                shown = pages.with_summaries(connection, rows[: campaigns.PAGE_ROWS])
            further = len(rows) > campaigns.PAGE_ROWS
            return pages.respond(
                request,
                "campaigns.html",
                rows=shown,
                wanted=wanted,
                conn_ids=sorted({conn_id for dag_id in dag_ids for conn_id in places[dag_id]}),
                dag_ids=sorted(dag_ids),
                older=urlencode({**wanted.named, "before": shown[-1].key}) if further else None,
                newest=urlencode(wanted.named) if wanted.before else None,
                refresh=REFRESH if any(map(will_change, shown)) else 0,
            )

        return pages.guarded(request, make)

    @app.get("/campaigns/{reference:path}", include_in_schema=False)
    def show_campaign(request: Request, reference: str, user: Annotated[Viewer, Depends(viewer)]) -> Response:
        return pages.guarded(request, lambda: details.campaign_page(pages, request, user, reference))


def _add_deliveries(app: FastAPI, viewer: Callable[..., Viewer], pages: Pages) -> None:
    @app.get("/deliveries", include_in_schema=False)
    def deliveries(
        request: Request,
        user: Annotated[Viewer, Depends(viewer)],
        references: Annotated[list[str], Query(alias="campaign")] = [],  # noqa: B006 - FastAPI copies it
    ) -> Response:
        """Show what a task sent, or its delivery counts as JSON with `Accept: application/json`."""
        return legacy.deliveries_page(pages, request, user, references)


def _add_search(app: FastAPI, viewer: Callable[..., Viewer], pages: Pages) -> None:
    @app.get("/search", include_in_schema=False)
    def ask(request: Request, user: Annotated[Viewer, Depends(viewer)]) -> Response:
        return pages.guarded(request, lambda: search.search_page(pages, request, user, None))

    # By POST, because URLs appear in logs and browser histories, and a recipient must not.
    @app.post("/search", include_in_schema=False)
    async def find(request: Request, user: Annotated[Viewer, Depends(viewer)]) -> Response:
        asked = await search.read_question(request)
        if asked is None:
            return pages.fail(request, 422, "Not a valid request", "The form cannot be read.")
        return await asyncio.to_thread(pages.guarded, request, lambda: search.search_page(pages, request, user, asked))


def _add_activity(app: FastAPI, viewer: Callable[..., Viewer], pages: Pages) -> None:
    @app.get("/contact-syncs", include_in_schema=False)
    def contact_syncs(
        request: Request,
        user: Annotated[Viewer, Depends(viewer)],
        conn_id: str = "",
        dag_id: str = "",
        first: str = "",
        last: str = "",
        before: str = "",
    ) -> Response:
        def make() -> Response:
            wanted = read_filter(conn_id, dag_id, first, last, before)
            return activity.contact_syncs_page(pages, request, user, wanted)

        return pages.guarded(request, make)

    @app.get("/passcodes", include_in_schema=False)
    def passcodes(request: Request, user: Annotated[Viewer, Depends(viewer)], days: str = "7") -> Response:
        return pages.guarded(request, lambda: activity.passcodes_page(pages, request, user, read_days(days)))

    @app.get("/airtime", include_in_schema=False)
    def airtime(
        request: Request, user: Annotated[Viewer, Depends(viewer)], days: str = "30", before: str = ""
    ) -> Response:
        def make() -> Response:
            check_text(before)
            return activity.airtime_page(pages, request, user, read_days(days), before)

        return pages.guarded(request, make)

    @app.get("/reports", include_in_schema=False)
    def reports(request: Request, user: Annotated[Viewer, Depends(viewer)]) -> Response:
        return pages.guarded(request, lambda: activity.reports_page(pages, request, user))


def read_days(text: str) -> int:
    """Return the number of days that a page shows.

    :raises BadQuestionError: when the text is no number of days
    """
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise BadQuestionError("days must be a number of days.")
    return int(text)


def read_filter(conn_id: str, dag_id: str, first: str, last: str, before: str) -> Filter:
    """Return the filter of a list.

    :raises BadQuestionError: when a parameter cannot be used
    """
    check_text(conn_id, dag_id, first, last, before)
    try:
        return Filter(
            conn_id or None,
            dag_id or None,
            date.fromisoformat(first) if first else None,
            date.fromisoformat(last) if last else None,
            campaigns.read_key(before) if before else None,
        )
    except ValueError:
        raise BadQuestionError("A date or the place in the list is not valid.") from None
