"""Alembic's environment: runs the migrations on the given connection, within its transaction."""

from __future__ import annotations

from alembic import context

from cpaas_provider.database.schema import alembic_version, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=alembic_version.name,
    render_as_batch=True,
)
context.run_migrations()
