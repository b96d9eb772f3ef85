from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from cpaas_provider.api.amounts import to_decimal
from cpaas_provider.database.activity.budgets import BudgetTable
from cpaas_provider.database.activity.progress import FAILED, RUNNING
from cpaas_provider.database.activity.stops import StopTable
from cpaas_provider.database.database import Database
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.hooks._account.budget import current_periods
from cpaas_provider.pages.campaigns import PAGE_ROWS
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    finish_send,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.pages.conftest import BUDGETS
from tests.unit.pages.recorded import campaign

EVIL = '<script>alert(1)</script>" onmouseover="x'


def shown(page: str) -> list[str]:
    """Return the references of the campaigns of a list, in order."""
    return re.findall(r'href="/cpaas/campaigns/([^"?]+)"', page)


def cells(page: str) -> dict[str, str]:
    """Return the figures of the first campaign of a list."""
    row = page.partition("<tbody>")[2].partition("</tr>")[0]
    found = re.findall(r'<td class="n" data-name="([^"]+)">(.*?)</td>', row, re.DOTALL)
    return {name: " ".join(re.sub("<[^>]+>", " ", text).split()) for name, text in found}


def tables(page: str) -> dict[str, int]:
    """Return the recipients by network and by reason, of the page of a campaign."""
    found = re.findall(r'data-name="(?:Name|Reason)">(.*?)</td><td class="n" data-name="Recipients">(\d+)</td>', page)
    return {name: int(number) for name, number in found}


def test_reports_that_do_not_count_are_in_no_figure_of_a_campaign(database: Database, reader: TestClient) -> None:
    """Another connection can sign a token that names the campaign. A request may have taken the place of another."""
    campaign(database, "spring", not_sent=0, sent=2)
    start_send(database, "spring")
    save_requests(database, SentRequest("pack", 2))
    save_reports(
        database, report(ADA, "delivered", token=token_for(ADA, OBI)), report(OBI, "failed", token=token_for(ADA, OBI))
    )
    finish_send(database, expected=2)
    before = reader.get("/campaigns/spring").text
    assert sorted(tables(before).values()) == [1, 2]
    forged = token_for(UMA, campaign="spring", reference="forged")
    save_reports(database, report(UMA, "failed", token=forged, conn_id="other", reason="forged words"))
    save_reports(
        database, report("uma@example.com", "failed", token=token_for(UMA, reference="replaced"), reason="replaced")
    )
    after = reader.get("/campaigns/spring").text
    assert tables(after) == tables(before)
    assert "forged words" not in after
    asked = reader.post("/search", data={"q": UMA}).text
    assert "forged words" not in asked


def test_chart_has_the_reports_of_a_campaign_whose_task_writes_the_connection_in_other_letters(
    database: Database, reader: TestClient
) -> None:
    campaign(database, "spring", not_sent=0, sent=2, conn_id="Shop")
    start_send(database, "spring")
    save_requests(database, SentRequest("pack", 2))
    save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
    assert "No delivery report has arrived yet" not in reader.get("/campaigns/spring").text


class TestList:
    def test_shows_the_figures_of_each(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring", not_sent=0)
        start_send(database, "spring")
        save_requests(database, SentRequest("pack", 2))
        save_reports(
            database,
            report(ADA, "delivered", token=token_for(ADA, OBI)),
            report(OBI, "failed", token=token_for(ADA, OBI)),
        )
        page = reader.get("/campaigns").text
        assert shown(page) == ["spring"]
        assert cells(page) == {
            "Recipients": "10",
            "Accepted": "8",
            "Delivered": "1",
            "Undelivered": "1",
            "Open": "6",
            "Unknown": "0",
            "Not sent": "0",
            "Invalid rows": "3",
            "Cost, balance": "12.5 87.5",
            "Rate, time left": "4.0/s \N{EN DASH}",
        }
        assert "waiting for reports" in page
        assert 'data-refresh="5"' in page

    def test_recipient_of_unknown_outcome_is_in_one_figure(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring", not_sent=0, sent=1, unknown_recipients=3)
        start_send(database, "spring")
        save_requests(database, SentRequest("pack", 1))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA)))
        save_reports(database, report(OBI, "delivered", token=token_for(OBI, UMA, reference="lost")))
        finish_send(database, expected=1, unknown=3)
        shown_cells = cells(reader.get("/campaigns").text)
        assert [shown_cells[name] for name in ("Delivered", "Open", "Unknown")] == ["2", "0", "2"]

    def test_unknown_recipient_that_was_sent_to_again_is_in_one_figure(
        self, database: Database, reader: TestClient
    ) -> None:
        """A later try began with 6 sent and 4 unknown recipients, and has sent to 3 of these again."""
        campaign(database, "spring", state=RUNNING, recipients=10, sent=9, rejected=0, unknown_recipients=4, not_sent=0)
        shown_cells = cells(reader.get("/campaigns").text)
        assert [shown_cells[name] for name in ("Recipients", "Accepted", "Unknown")] == ["10", "9", "1"]

    def test_campaign_without_delivery_reports_shows_no_delivery(self, database: Database, reader: TestClient) -> None:
        campaign(database, "quiet", delivery_reports=None)
        page = reader.get("/campaigns").text
        assert cells(page)["Delivered"] == cells(page)["Open"] == "\N{EN DASH}"
        assert "data-refresh" not in page

    def test_campaign_being_sent_shows_rate_and_remaining_time(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring", state=RUNNING, recipients=609, not_sent=600, recipients_per_second=5.0)
        page = reader.get("/campaigns").text
        assert cells(page)["Rate, time left"] == "5.0/s 2 min"
        assert ">sending<" in page

    def test_campaign_of_a_killed_task_is_marked(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring", state=RUNNING, silent=timedelta(hours=1))
        assert "no sign of life" in reader.get("/campaigns").text

    def test_empty_list_explains_when_a_campaign_appears(self, reader: TestClient) -> None:
        assert "A campaign appears here when its task begins to send" in reader.get("/campaigns").text

    def test_leads_to_the_task_in_airflow(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring", dag_id="of spring/x", map_index=3)
        assert 'href="/dags/of%20spring%2Fx/runs/run%201/tasks/send/mapped/3"' in reader.get("/campaigns").text


class TestKeyset:
    def test_every_campaign_is_on_one_page(self, database: Database, reader: TestClient) -> None:
        number = 2 * PAGE_ROWS + 3
        for place in range(number):
            # Several begin in the same moment.
            campaign(database, f"c{place:03}", minutes=place // 4)
        found, address = [], "/campaigns"
        while address:
            page = reader.get(address).text
            found.append(shown(page))
            link = re.search(r'href="/cpaas(/campaigns\?[^"]+)" rel="next"', page)
            address = link[1].replace("&amp;", "&") if link else ""
        assert [len(one) for one in found] == [PAGE_ROWS, PAGE_ROWS, 3]
        assert [name for one in found for name in one] == [f"c{place:03}" for place in reversed(range(number))]

    def test_link_to_the_next_page_contains_the_filter(self, database: Database, reader: TestClient) -> None:
        for place in range(PAGE_ROWS + 1):
            campaign(database, f"c{place:03}", minutes=place)
        page = reader.get("/campaigns", params={"conn_id": "shop", "first": "2026-05-01"}).text
        assert "conn_id=shop&amp;first=2026-05-01&amp;before=" in page


class TestFilter:
    def test_list_is_filtered_by_connection_dag_and_date(self, database: Database, reader: TestClient) -> None:
        campaign(database, "one", conn_id="shop")
        campaign(database, "two", conn_id="bank", dag_id="other_dag", minutes=24 * 60)

        def found(**wanted: str) -> list[str]:
            return shown(reader.get("/campaigns", params=wanted).text)

        assert found() == ["two", "one"]
        assert found(conn_id="bank") == found(conn_id="Bank") == ["two"]
        assert found(dag_id="spring_dag") == ["one"]
        assert found(first="2026-05-02") == ["two"]
        assert found(last="2026-05-01") == ["one"]
        assert found(first="2026-05-01", last="2026-05-02") == ["two", "one"]
        assert found(conn_id="nobody") == []

    @pytest.mark.parametrize(
        "wanted",
        [
            {"conn_id": "a\x00b"},
            {"dag_id": "\x00"},
            {"before": "\x00~x"},
            {"before": "yesterday~x"},
            {"before": "2026-05-01T00:00:00"},
            {"first": "yesterday"},
            {"last": "2026-02-30"},
            {"conn_id": "x" * 501},
            {"dag_id": "\u202e"},
        ],
    )
    def test_invalid_filter_is_refused(self, reader: TestClient, wanted: dict[str, str]) -> None:
        answer = reader.get("/campaigns", params=wanted)
        assert (answer.status_code, "Not a valid request" in answer.text) == (422, True)


class TestPermissions:
    @pytest.mark.parametrize(
        "path", ["/", "/campaigns", "/campaigns/spring", "/deliveries?campaign=spring", "/static/pages.css"]
    )
    def test_page_without_a_login_is_refused(self, database: Database, anonymous: TestClient, path: str) -> None:
        campaign(database, "spring")
        answer = anonymous.get(path)
        assert answer.status_code == 401
        assert "spring_dag" not in answer.text

    def test_campaigns_of_other_dags_are_not_there(self, database: Database, anonymous: TestClient) -> None:
        campaign(database, "mine", dag_id="mine")
        campaign(database, "theirs", dag_id="theirs", conn_id="secret_conn")
        headers = {"x-dags": "mine"}
        page = anonymous.get("/campaigns", headers=headers).text
        assert shown(page) == ["mine"]
        assert "theirs" not in page
        assert "secret_conn" not in page
        for wanted in ({"dag_id": "theirs"}, {"conn_id": "secret_conn"}):
            assert shown(anonymous.get("/campaigns", params=wanted, headers=headers).text) == []

    def test_campaign_of_another_dag_is_not_found(self, database: Database, anonymous: TestClient) -> None:
        campaign(database, "theirs", dag_id="theirs")
        start_send(database, "single")  # of the DAG "dag"
        headers = {"x-dags": "mine"}
        missing = anonymous.get("/campaigns/nothing", headers=headers)
        for reference in ("theirs", "single"):
            answer = anonymous.get(f"/campaigns/{reference}", headers=headers)
            assert (answer.status_code, answer.text) == (404, missing.text)
            assert anonymous.get(f"/campaigns/{reference}", headers={"x-dags": "theirs dag"}).status_code == 200


class TestCampaign:
    def test_campaign_page_shows_figures_and_results(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring", not_sent=0)
        start_send(database, "spring")
        save_reports(
            database,
            report(ADA, "delivered", token=token_for(ADA, OBI)),
            report(OBI, "failed", token=token_for(ADA, OBI), description="Absent subscriber"),
        )
        page = reader.get("/campaigns/spring").text
        assert "<title>spring_dag - CPaaS</title>" in page
        assert "Absent subscriber" in page
        assert "MTN" in page
        assert "1 delivered" in page
        assert "1 undelivered" in page
        assert "max_charge" in page
        assert "/data/results.jsonl" in page
        assert 'href="/dags/spring_dag/runs/run%201/tasks/send"' in page

    @pytest.mark.parametrize(("failures", "is_braked"), [(19, False), (20, True)])
    def test_too_many_permanent_failures_warn_that_no_recipient_is_suppressed(
        self, database: Database, reader: TestClient, failures: int, is_braked: bool
    ) -> None:
        campaign(database, "spring")
        start_send(database, "spring")
        save_requests(database, SentRequest("pack", 100))
        recipients = [f"23480300{number:05d}" for number in range(100)]
        failed = (
            report(recipient, "undelivered", token=token_for(*recipients), reason="Unknown subscriber")
            for recipient in recipients[:failures]
        )
        save_reports(database, *failed)
        page = reader.get("/campaigns/spring").text
        warning = f"{failures} of 100 recipients have a permanent failure."
        assert (warning in page) is is_braked
        assert ("add no recipient to the suppression list" in page) is is_braked
        assert recipients[0] not in page

    def test_campaign_page_shows_no_recipient(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring")
        start_send(database, "spring")
        told = report(ADA, "failed", token=token_for(ADA, OBI), description=f"Number +{ADA} or ada@example.com unknown")
        save_reports(database, told, report("ada@example.com", "failed", token=token_for(ADA, OBI)))
        page = reader.get("/campaigns/spring").text
        assert ADA not in page
        assert "ada@" not in page
        assert "Number *** or *** unknown" in page

    def test_unresolved_requests_are_shown_with_the_resolve_command(
        self, database: Database, reader: TestClient
    ) -> None:
        campaign(database, "spring", state=FAILED, unknown_recipients=2, unknown_references=["cpaas-a"], map_index=2)
        page = reader.get("/campaigns/spring").text
        assert "airflow cpaas journal resolve spring_dag &#39;run 1&#39; send --map-index 2 --sent" in page
        assert "<code>cpaas-a</code>" in page

    def test_page_of_a_single_message_shows_its_delivery(self, database: Database, reader: TestClient) -> None:
        start_send(database, "single")
        save_requests(database, SentRequest("single", 1), campaign="single")
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, campaign="single", reference="single")))
        finish_send(database, "single", expected=1)
        page = reader.get("/campaigns/single").text
        assert "all reported" in page

    def test_shows_a_name_as_text(self, database: Database, reader: TestClient) -> None:
        campaign(
            database,
            EVIL,
            dag_id=EVIL,
            conn_id=EVIL,
            settings={EVIL: EVIL},
            results_path=EVIL,
            unknown_recipients=1,
            unknown_references=[EVIL],
        )
        campaign(database, "spring", dag_id=EVIL)
        save_reports(database, report(ADA, "failed", token=token_for(ADA, OBI), description=EVIL))
        assert "onmouseover=" in reader.get("/campaigns/spring").text
        for path in ("/campaigns", f"/campaigns/{EVIL}", "/campaigns/spring", "/deliveries"):
            answer = reader.get(path, params={"campaign": EVIL})
            assert answer.status_code == 200
            assert "<script>alert" not in answer.text
            assert not re.search(r'<[^>]* onmouseover="x', answer.text)
            assert "&lt;script&gt;alert(1)" in answer.text

    @pytest.mark.parametrize("reference", ["%00", "a%00b", "x" * 121, "%E2%80%AE", "unheard-of"])
    def test_unknown_or_invalid_reference_is_not_found(self, reader: TestClient, reference: str) -> None:
        assert reader.get(f"/campaigns/{reference}").status_code == 404

    def test_campaign_of_many_recipients_is_counted_in_the_background(
        self, database: Database, reader: TestClient, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("cpaas_provider.pages.summaries.SMALL", 0)
        campaign(database, "spring", not_sent=0)
        start_send(database, "spring")
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        page = reader.get("/campaigns/spring").text
        assert "counting ..." in page
        assert "data-refresh" in page
        for _ in range(1000):
            if "counting ..." not in (page := reader.get("/campaigns/spring").text):
                break
        assert "counting ..." not in page
        assert cells(reader.get("/campaigns").text)["Delivered"] == "1"


class TestHeaders:
    def test_content_security_policy_forbids_other_origins(self, database: Database, reader: TestClient) -> None:
        campaign(database, "spring")
        for path in ("/campaigns", "/campaigns/spring", "/campaigns/unheard-of"):
            answer = reader.get(path)
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "frame-ancestors 'self'" in policy
            assert "unsafe" not in policy
            assert " style=" not in answer.text
            assert not re.search(r"<script(?! src=)", answer.text)

    def test_script_and_style_are_served(self, reader: TestClient) -> None:
        for name in ("pages.js", "pages.css"):
            assert reader.get(f"/static/{name}").status_code == 200
        assert reader.get("/static/app.py").status_code == 404
        assert reader.get("/static/..%2Fapp.py").status_code == 404


class TestBudgets:
    def spend(self, database: Database, amount: float) -> None:
        periods = current_periods(BUDGETS["limited"], datetime.now(UTC))
        assert BudgetTable(database, "limited").reserve("send_sms", 1, to_decimal(amount), periods)

    def test_budgets_of_a_connection_are_where_its_account_is_shown(
        self, database: Database, reader: TestClient
    ) -> None:
        campaign(database, "spring", conn_id="limited")
        self.spend(database, 100)
        today = current_periods(BUDGETS["limited"], datetime.now(UTC))[0].name
        for path in ("/campaigns", "/campaigns/spring"):
            page = reader.get(path).text
            assert (
                "daily_budget (500) of connection &#39;limited&#39; is reached to 20 % in "
                f"{today} (Africa/Lagos). 100 of 500 is spent or reserved, 400 remain." in page
            )
            assert '<p class="warning">Budget' not in page
        self.spend(database, 400)
        page = reader.get("/campaigns/spring").text
        assert '<p class="warning">Budget: daily_budget (500)' in page
        assert "No request that costs money leaves. Raise daily_budget" in page

    def test_budget_of_a_connection_of_other_dags_is_not_shown(self, database: Database, anonymous: TestClient) -> None:
        campaign(database, "spring", dag_id="mine")
        campaign(database, "autumn", dag_id="theirs", conn_id="limited")
        assert "Budget" not in anonymous.get("/campaigns", headers={"x-dags": "mine"}).text


class TestStops:
    def test_stop_of_its_connection_is_on_the_campaign_and_on_the_list(
        self, database: Database, reader: TestClient
    ) -> None:
        campaign(database, "spring", conn_id="Shop")
        for path in ("/campaigns", "/campaigns/spring"):
            assert "stopped connection" not in reader.get(path).text
        StopTable(database).stop("shop", "ada", "<b>wrong</b> text")
        for path in ("/campaigns", "/campaigns/spring"):
            page = reader.get(path).text
            assert re.search(r"ada stopped connection &#39;Shop&#39; at [-\d]+ [:\d]+ UTC: &lt;b&gt;wrong", page)
            assert "airflow cpaas resume --conn-id Shop" in page
        StopTable(database).resume("shop")
        assert "stopped connection" not in reader.get("/campaigns").text

    def test_stop_of_a_connection_of_other_dags_is_not_shown(self, database: Database, anonymous: TestClient) -> None:
        campaign(database, "spring", dag_id="mine")
        campaign(database, "autumn", dag_id="theirs", conn_id="secret")
        StopTable(database).stop("secret", "ada")
        assert "secret" not in anonymous.get("/campaigns", headers={"x-dags": "mine"}).text
