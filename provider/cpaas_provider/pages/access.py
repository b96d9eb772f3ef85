"""Access to the pages, by Airflow's login and permissions on DAGs."""

# No postponed annotations: FastAPI evaluates the annotations of the dependency, which refer to local names.
from collections.abc import Callable, Iterable
from typing import Annotated, Any

from msgspec import Struct

ReadableDags = Callable[[Iterable[str]], set[str]]


class Viewer(Struct, frozen=True):
    """A user who is logged in and may use the UI.

    :param readable: returns those of the given DAGs that the viewer may read
    :param sees_totals: whether the viewer may see counts over all DAGs
    """

    readable: ReadableDags
    sees_totals: bool

    def visible(self, rows: Iterable[Any]) -> list[Any]:
        """Return those of the rows whose DAG the viewer may read. A row may be ``None``, for one that was not found."""
        found = [row for row in rows if row is not None]
        allowed = self.readable({row.dag_id for row in found})
        return [row for row in found if row.dag_id in allowed]


def airflow_viewer() -> Callable[..., Viewer]:
    """Return the dependency that admits users of Airflow's UI who may read task instances.

    What belongs to a DAG is shown to those who may read the DAG, as Airflow does with task instances. A DAG that was
    deleted from Airflow can be read by no user. Counts over all DAGs need the permission on cluster activity.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi import Depends, HTTPException

    def viewer(user: Annotated[Any, Depends(get_user)]) -> Viewer:
        manager: Any = get_auth_manager()

        def sees(view: AccessView) -> bool:
            return bool(manager.is_authorized_view(access_view=view, user=user))

        instances = DagAccessEntity.TASK_INSTANCE
        if not sees(AccessView.WEBSITE) or not manager.is_authorized_dag(
            method="GET", access_entity=instances, user=user
        ):
            raise HTTPException(403, "Forbidden")
        return Viewer(lambda dag_ids: _readable(manager, user, dag_ids), sees(AccessView.CLUSTER_ACTIVITY))

    return viewer


def _readable(manager: Any, user: Any, dag_ids: Iterable[str]) -> set[str]:
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    wanted = sorted(set(dag_ids))
    with create_session(scoped=False) as session:
        known = set(session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(wanted))))
        team_of = DagModel.get_dag_id_to_team_name_mapping(sorted(known), session=session)
    of_team: dict[str | None, set[str]] = {}
    for dag_id in known:
        of_team.setdefault(team_of.get(dag_id), set()).add(dag_id)
    return {
        dag_id
        for team, team_dags in of_team.items()
        for dag_id in manager.filter_authorized_dag_ids(dag_ids=team_dags, user=user, method="GET", team_name=team)
    }
