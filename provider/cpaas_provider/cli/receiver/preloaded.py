"""Imported by the process that forks a receiver's workers, and by nothing else."""

from __future__ import annotations

from cpaas_provider.cli.receiver.workers import preload

preload()
