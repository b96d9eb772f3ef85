"""Alembic's environment: runs the migrations on the given connection, within its transaction."""

from __future__ import annotations

from alembic import context

from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.base import alembic_version

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=alembic_version.name,
    render_as_batch=True,
)
context.run_migrations()
