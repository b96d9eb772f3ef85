"""The files for containers, Kubernetes, the hosted CI and pre-commit: each is valid, and names what is there."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow.cli import cli_parser
from cpaas_provider.provider_info import CONNECTION_FIELDS, get_provider_info
from tests.system.cluster.compose import SERVICES, common_settings, compose
from tests.system.cluster.nodes import CONTROL

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
OPTION = re.compile(r"AIRFLOW__([A-Z_]+?)__([A-Z_]+)")


def known_options() -> set[str]:
    """Return the variables of all options of Airflow, its Celery provider and this provider."""
    from airflow.configuration import retrieve_configuration_description

    sections: dict[str, Any] = dict(retrieve_configuration_description(include_providers=True))
    sections |= get_provider_info()["config"]  # type: ignore[arg-type]
    return {
        f"AIRFLOW__{section.upper()}__{name.upper()}"
        for section, content in sections.items()
        for name in content["options"]
    }


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the container file, continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", CONTAINERFILE)
    lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


class TestContainerfile:
    def test_instructions_are_known(self) -> None:
        words = [word for word, _ in instructions()]
        assert words[0] == "FROM"
        assert set(words) <= {"FROM", "ARG", "ENV", "COPY", "RUN", "USER", "WORKDIR"}

    def test_copied_files_exist(self) -> None:
        for _, rest in (found for found in instructions() if found[0] == "COPY"):
            *sources, _ = [word for word in shlex.split(rest) if not word.startswith("--")]
            assert sources
            assert all((ROOT / source).exists() for source in sources), sources

    def test_airflow_is_the_pinned_version(self) -> None:
        (version,) = re.findall(r"^apache-airflow==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M)
        assert instructions()[0][1].startswith(f"apache/airflow:{version}-python3.")

    def test_shell_of_run_is_valid(self, tmp_path: Path) -> None:
        for number, (_, rest) in enumerate(found for found in instructions() if found[0] == "RUN"):
            script = tmp_path / f"{number}.sh"
            script.write_text(rest)
            assert os.system(f"bash -n {shlex.quote(str(script))}") == 0


class TestCompose:
    def test_every_service_has_an_image_and_known_dependencies(self) -> None:
        services = compose()["services"]
        assert set(services) >= {"postgres", "redis", "api-server", "triggerer", "worker", "receiver", "sandbox"}
        for name, service in services.items():
            assert service["image"], name
            assert set(service.get("depends_on", {})) <= set(services), name
            assert set(service) <= SERVICES, name
        assert {config["source"] for config in services["postgres"]["configs"]} == set(compose()["configs"])

    def test_every_component_of_a_cluster_is_there(self) -> None:
        services = compose()["services"]
        assert [services[name]["command"] for name in CONTROL] == [[name] for name in CONTROL]
        assert services["worker"]["command"] == ["celery", "worker"]

    def test_commands_are_commands_of_airflow(self) -> None:
        parser = cli_parser.get_parser()
        for name, service in compose()["services"].items():
            is_airflow = service["image"] == "airflow-cpaas" and "entrypoint" not in service
            # The Celery commands are there where its executor is configured.
            if is_airflow and service["command"][0] != "celery":
                assert parser.parse_args(service["command"]).subcommand, name

    def test_migration_runs_before_every_component_with_a_database(self) -> None:
        services = compose()["services"]
        assert services["migrate"]["command"] == ["airflow db migrate && airflow cpaas db migrate"]
        for name in (*CONTROL, "worker", "receiver"):
            assert services[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}

    def test_options_are_known(self) -> None:
        settings = compose()["x-airflow"]["environment"]
        given = {name for name in settings if OPTION.fullmatch(name)}
        assert len(given) > 10
        assert given <= known_options()

    def test_connection_is_json_of_known_extras_and_hosts(self) -> None:
        text = compose()["x-airflow"]["environment"]["AIRFLOW_CONN_CPAAS_DEFAULT"]
        connection = json.loads(re.sub(r"\$\{[^}]*\}", "a-secret-of-the-trial", text))
        assert set(connection["extra"]) <= set(CONNECTION_FIELDS)
        for url in (connection["host"], connection["extra"]["callback_url"]):
            assert re.match(r"http://([a-z-]+):", url)[1] in compose()["services"]  # type: ignore[index]

    def test_every_secret_must_be_set(self) -> None:
        text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
        used = set(re.findall(r"(?<!\$)\$\{(\w+)", text))
        assert used == set(re.findall(r"\$\{(\w+):\?[^}]+\}", text))

    def test_cluster_test_runs_with_the_settings_of_the_file(self) -> None:
        assert common_settings()["AIRFLOW__CPAAS__REQUIRE_SHARED_DATABASE"] == "true"
        assert not [value for value in common_settings().values() if "$" in value or "://" in value]


def test_helm_values_name_known_options_and_mounted_volumes() -> None:
    values = yaml.safe_load((DEPLOY / "helm-values.yaml").read_text(encoding="utf-8"))
    options = get_provider_info()["config"]["cpaas"]["options"]  # type: ignore[index]
    assert set(values["config"]["cpaas"]) <= set(options)
    assert {entry["envName"] for entry in values["secret"]} == {
        "AIRFLOW__CPAAS__DATABASE",
        "AIRFLOW_CONN_CPAAS_DEFAULT",
    }
    workers = values["workers"]
    assert {mount["name"] for mount in workers["extraVolumeMounts"]} == {one["name"] for one in workers["extraVolumes"]}
    assert workers["terminationGracePeriodSeconds"] > 5


def test_hosted_ci_runs_what_ci_runs_anywhere() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text(encoding="utf-8"))
    jobs = workflow["jobs"]
    assert jobs["run"]["steps"][-1] == {"run": ".ci/run"}
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert jobs["prerelease"]["steps"][-1] == {"run": "make test-prerelease"}
    assert [job["services"]["postgres"]["ports"] for job in jobs.values()] == [["5432:5432"]] * 2


@pytest.mark.parametrize("hook", ["ruff-check", "ruff-format", "import-contracts", "types", "reference"])
def test_pre_commit_runs_programs_of_the_environment(hook: str) -> None:
    (repo,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert repo["repo"] == "local"
    (found,) = [one for one in repo["hooks"] if one["id"] == hook]
    program, *arguments = found["entry"].split()
    if program == "make":
        assert re.search(rf"^{arguments[-1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    else:
        assert (ROOT / program).is_file()
    re.compile(found.get("files", ""))
