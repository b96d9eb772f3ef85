"""What this provider promises, line by line, and the fast tests that hold it to that.

``tests/unit/test_tiers.py`` sees that each test named here exists and is fast, that pytest collects it, and that no
operator or sensor goes without a real task instance. ``make reference`` makes a page of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

Tests = tuple[str, ...]

_API = "tests/unit/api/"
_SENDING = "tests/unit/sending/"
_CAMPAIGN = "tests/unit/sending/campaign/"
_DELIVERY = "tests/unit/delivery/"
_SYNC = "tests/unit/contacts/sync/"
_AIRFLOW = "tests/airflow/"
_ONE_SEND = "test_tries_in_any_order_reach_no_recipient_twice_and_miss_none"

_OUTCOMES: Mapping[str, Tests] = {
    "a success with its resource, bare or in an envelope, is accepted": (
        f"{_API}test_responses.py::test_resource_is_read_bare_or_in_an_envelope",
        f"{_API}test_responses.py::test_errors_beside_an_id_do_not_undo_the_acceptance",
        f"{_API}test_responses.py::test_resource_is_accepted_inside_any_envelope",
        "tests/contract/test_operations.py::test_operation_is_accepted_once",
    ),
    "a request that never reached the service was not sent": (
        f"{_API}test_responses.py::test_failures_before_the_first_byte_are_the_known_six",
        f"{_API}test_transport.py::test_refused_connection_is_named",
        f"{_API}test_transport.py::test_unknown_host_is_a_dns_failure",
        f"{_API}test_transport.py::test_host_that_accepts_no_connection_is_a_connect_timeout",
        f"{_API}test_transport.py::test_untrusted_certificate_is_a_tls_failure",
    ),
    "429 by status line or in the body, 425, and 503 with Retry-After are not sent, the last except for airtime": (
        f"{_API}test_responses.py::test_429_with_any_body_is_not_sent",
        f"{_API}test_responses.py::test_429_in_the_body_is_not_sent",
        f"{_API}test_responses.py::test_425_is_not_sent_and_a_purchase_is_not_retried",
        f"{_API}test_responses.py::test_503_with_retry_after_is_not_sent_except_for_a_purchase",
        "tests/contract/test_faults.py::test_503_with_retry_after_is_not_sent_except_for_a_purchase",
    ),
    "what was not sent may be retried": (
        f"{_API}test_core.py::test_call_is_retried_only_if_its_retry_safety_allows_it",
        f"{_SENDING}test_engine.py::test_request_that_was_not_sent_is_made_by_the_next_try",
    ),
    "a 4xx, or a body under a success that is an error of the request, is rejected": (
        f"{_API}test_responses.py::test_4xx_is_a_rejection_and_is_never_retried",
        f"{_API}test_responses.py::test_error_body_under_a_success_is_a_rejection",
    ),
    "a rejected request is not retried, and a rejected batch of a campaign is bisected": (
        f"{_CAMPAIGN}test_odd_service.py::test_rejection_that_concerns_all_ends_the_campaign_at_the_first_request",
        f"{_CAMPAIGN}test_odd_service.py::test_recipients_named_in_a_rejection_are_removed_and_the_others_sent",
        "tests/contract/test_faults.py::test_error_under_200_is_a_rejection",
        f"{_CAMPAIGN}test_rejections.py::test_batch_without_named_recipients_is_halved",
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_rejected_batch_without_named_recipients_is_bisected",
    ),
    "without a readable response to a request that left, the outcome is unknown": (
        f"{_API}test_responses.py::test_request_without_a_response_is_unknown",
        f"{_API}test_responses.py::test_5xx_is_unknown",
        f"{_API}test_responses.py::test_unreadable_success_is_unknown",
        f"{_API}test_responses.py::test_success_without_a_required_field_is_unknown",
        f"{_API}test_responses.py::test_redirect_is_not_followed_and_leaves_unsafe_requests_unknown",
        f"{_API}test_responses.py::test_408_is_unknown",
        f"{_API}test_responses.py::test_success_whose_body_names_a_server_error_is_unknown",
        "tests/contract/test_faults.py::test_unknown_outcome_is_retried_only_if_that_is_harmless",
    ),
    "no request that may have been accepted is bisected or retried": (
        f"{_API}test_outcome_oracle.py::test_verdict_on_any_answer_is_one_that_the_promises_allow",
        f"{_CAMPAIGN}test_odd_service.py::test_unknown_batch_is_never_bisected_nor_sent_again",
        f"{_CAMPAIGN}test_rejections.py::test_unknown_outcome_is_never_bisected",
        f"{_API}test_core.py::test_unknown_outcome_of_a_retry_ends_the_call",
        f"{_AIRFLOW}operators/test_sms.py::TestRetries::test_unknown_request_is_not_sent_again",
        f"{_AIRFLOW}operators/test_email.py::TestRetries::test_unknown_request_is_not_sent_again",
        f"{_AIRFLOW}operators/test_airtime.py::TestRetries::test_unknown_purchase_is_not_repeated",
    ),
    "the client is tested with every fault of the sandbox": (
        "tests/contract/test_faults.py::test_every_fault_of_the_sandbox_is_exercised",
    ),
    "retries inside a try wait exponentially longer, with full jitter": (
        f"{_API}test_core.py::test_retry_delays_double_with_full_jitter",
    ),
    "Retry-After is obeyed up to a bound": (
        f"{_API}test_core.py::test_retry_after_up_to_the_cap",
        f"{_API}test_core.py::test_retry_after_is_obeyed_to_the_second",
        "tests/contract/test_faults.py::test_long_retry_after_is_raised_to_the_caller",
    ),
    "above that bound the task defers, uses up no try, and sends on the worker": (
        f"{_AIRFLOW}test_deferral.py::TestDagRun::test_request_is_made_once_and_no_try_is_used_up",
        f"{_AIRFLOW}campaigns/test_tries.py::TestLongRetryAfter::test_long_retry_after_defers_and_then_sends_to_remaining_recipients",
    ),
    "the retry policy does the same for tasks that use the hook": (
        f"{_AIRFLOW}test_retry_policy.py::test_request_that_must_not_be_repeated_fails_without_a_retry",
        f"{_AIRFLOW}test_retry_policy.py::test_retry_after_of_the_service_is_the_delay",
    ),
}

_JOURNAL: Mapping[str, Tests] = {
    "the journal never expires": (f"{_AIRFLOW}journal/test_retries.py::test_journal_is_never_collected_by_airflow",),
    "a campaign writes once a window": (
        f"{_SENDING}journal/test_writer.py::test_one_write_holds_results_of_one_window_and_intents_of_the_next",
        f"{_CAMPAIGN}test_model.py::test_undisturbed_campaign_writes_its_head_and_one_batch_a_window",
        f"{_AIRFLOW}campaigns/test_tries.py::test_state_holds_nothing_private_and_is_written_once_per_window",
    ),
    "an intent that cannot be written sends nothing": (
        f"{_SENDING}test_engine.py::test_intent_that_cannot_be_written_prevents_the_request",
        f"{_SENDING}journal/test_writer.py::test_intent_that_cannot_be_written_and_all_later_ones_are_refused",
        f"{_AIRFLOW}journal/test_store.py::TestUnreachableState::test_no_try_sends_while_the_state_store_fails",
    ),
    "it is keyed by a hash of channel and recipient, and shows no number": (
        f"{_SENDING}test_hashing.py::test_hashes_differ_under_another_secret_or_identity",
        f"{_SENDING}test_hashing.py::test_member_hash_depends_on_the_operation",
        f"{_AIRFLOW}journal/test_store.py::TestPrivacy::test_stored_journal_holds_nothing_private",
    ),
    "a reference depends on the run, the nonce of the journal and the recipients, and not on their order": (
        f"{_SENDING}test_hashing.py::test_reference_does_not_depend_on_the_order_of_members",
        f"{_SENDING}test_hashing.py::test_reference_depends_on_members_operation_nonce_and_epoch",
    ),
    "if a source is reordered or edited between tries, each recipient gets the message once": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestRetries::test_source_reordered_and_edited_between_tries_sends_to_each_recipient_once",
        f"{_AIRFLOW}journal/test_changes.py::TestChangedRecipients::test_another_order_or_notation_of_a_number_is_the_same_recipient",
        f"{_SENDING}test_engine.py::test_rerun_sends_only_to_new_recipients_in_any_order",
    ),
    "an author's reference goes to the service, and the provider's into journal and callback URL": (
        f"{_AIRFLOW}journal/test_unknown.py::test_author_s_own_reference_goes_on_the_wire_and_ours_into_the_error",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_sms_is_tracked_per_recipient",
    ),
    "requests run ahead of their results by a bounded number": (
        f"{_SENDING}journal/test_writer.py::test_stored_intents_without_results_never_exceed_the_workers",
    ),
    "requests run ahead of their results by a bounded number of recipients": (
        f"{_CAMPAIGN}test_model.py::test_killed_try_leaves_at_most_the_cap_and_one_request_pending",
    ),
    "after a kill at most what was pending is unknown": (
        f"{_CAMPAIGN}test_model.py::test_kill_at_any_write_leaves_at_most_one_window_unknown",
    ),
    "a try that was replaced writes nothing and stops": (
        f"{_AIRFLOW}journal/test_store.py::TestReplacedTry::test_try_replaced_before_its_intent_sends_nothing",
        f"{_AIRFLOW}journal/test_store.py::TestReplacedTry::test_try_replaced_after_its_request_fails_and_names_the_request",
        f"{_AIRFLOW}campaigns/test_replaced.py::test_replaced_try_does_not_overwrite_the_results_file_of_the_new_try",
        f"{_SENDING}journal/test_writer.py::test_superseded_try_stores_no_intent_and_writes_once",
    ),
    "a single send costs one read and two writes, a campaign's first try one get": (
        f"{_AIRFLOW}journal/test_retries.py::test_state_is_read_once_and_written_twice",
        f"{_SENDING}test_engine.py::test_first_try_reads_once_writes_twice_and_makes_one_request",
        f"{_SENDING}journal/test_log.py::TestStoredEntries::test_first_try_reads_once",
    ),
}

_LATER_TRIES: Mapping[str, Tests] = {
    "a run that is deleted and made again, or cloned, inherits nothing": (
        f"{_SENDING}test_runs.py::test_runs_in_any_order_do_not_affect_later_runs",
        f"{_SENDING}test_runs.py::test_lost_request_is_not_established_by_another_deployment",
        f"{_AIRFLOW}journal/test_made_again.py::test_lost_request_is_not_resolved_by_the_first_run",
        f"{_AIRFLOW}journal/test_made_again.py::test_report_of_the_first_run_does_not_resolve_a_purchase_of_the_recreated_run",
        f"{_AIRFLOW}journal/test_made_again.py::test_sensor_does_not_see_what_the_first_run_delivered",
        f"{_AIRFLOW}journal/test_made_again.py::test_recreated_run_counts_separately_for_the_frequency_cap",
    ),
    "after a lost journal nothing is sent and nothing is established": (
        f"{_SENDING}test_runs.py::test_nothing_is_sent_or_established_after_a_lost_journal",
        f"{_AIRFLOW}journal/test_made_again.py::test_no_outcome_is_established_after_a_lost_journal",
    ),
    "a journal that is older than what Airflow knows of it is a lost one": (
        f"{_SENDING}test_runs.py::test_retry_on_an_older_copy_with_a_part_of_the_journal_is_refused",
        f"{_AIRFLOW}campaigns/test_keys.py::TestLostJournals::test_copy_with_a_part_of_the_journal_is_refused_too",
        f"{_AIRFLOW}campaigns/test_keys.py::TestLostJournals::test_new_run_on_an_older_copy_is_refused_whatever_its_key",
        f"{_AIRFLOW}cli/test_messages.py::TestIdempotencyKey::test_older_copy_of_the_database_is_refused_before_a_request",
    ),
    "what was accepted is returned with the same XCom and without a request": (
        f"{_AIRFLOW}journal/test_retries.py::test_every_further_retry_returns_the_same_result_without_a_request",
        f"{_AIRFLOW}journal/test_retries.py::test_retry_after_a_send_returns_the_same_result_without_a_request",
        f"{_AIRFLOW}campaigns/test_results.py::test_xcom_is_small_and_the_same_when_a_later_try_only_reports",
    ),
    "an unknown passcode is resolved by exactly one new record within the clock skew": (
        f"{_SENDING}test_probes.py::test_exactly_one_new_record_belongs_to_the_request",
        f"{_SENDING}test_probes.py::test_two_new_records_prove_nothing",
        f"{_SENDING}test_probes.py::test_only_a_record_of_the_time_of_the_request_counts",
        f"{_AIRFLOW}journal/test_unknown.py::TestPasscodes::test_single_new_otp_record_resolves_the_request",
        f"{_AIRFLOW}journal/test_unknown.py::TestPasscodes::test_request_is_not_sent_if_earlier_records_cannot_be_read",
    ),
    "a delivery report resolves an unknown send, and the task defers for one up to a bound": (
        f"{_AIRFLOW}delivery/test_callbacks.py::TestReportProbe::test_report_resolves_an_unknown_send",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestReportProbe::test_unknown_send_without_a_report_is_deferred_and_then_fails",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestReportProbe::test_reports_resolve_requests_of_a_campaign",
        f"{_AIRFLOW}journal/test_evidence.py::test_task_is_deferred_until_a_probe_has_an_outcome_and_uses_no_try",
        f"{_AIRFLOW}journal/test_evidence.py::test_on_unknown_applies_after_unknown_timeout_without_an_outcome",
    ),
    "a deliberate resend of a purchase is resolved by the status duplicate": (
        f"{_AIRFLOW}journal/test_clear.py::test_duplicate_response_resolves_a_purchase_repeated_after_lost_state",
        f"{_AIRFLOW}journal/test_unknown.py::test_duplicate_response_to_a_first_request_is_no_purchase",
    ),
    "`fail` sends everything else first, then fails permanently and names the references": (
        f"{_SENDING}test_engine.py::test_other_requests_are_sent_before_an_unknown_one_fails_the_task",
        f"{_AIRFLOW}journal/test_unknown.py::test_unknown_request_fails_the_task_by_default_and_is_named",
        f"{_AIRFLOW}campaigns/test_tries.py::TestUnknown::test_unknown_request_fails_the_task_after_all_others_are_sent",
    ),
    "`skip` succeeds and counts unknown recipients apart from sent ones": (
        f"{_AIRFLOW}journal/test_unknown.py::test_skip_succeeds_and_counts_the_recipient_as_unknown",
        f"{_AIRFLOW}campaigns/test_tries.py::TestUnknown::test_skip_succeeds_and_counts_unknown_recipients",
    ),
    "`resend` leaves no recipient missing": (
        f"{_SENDING}test_engine.py::test_resend_repeats_the_whole_unknown_request",
        f"{_AIRFLOW}journal/test_unknown.py::test_resend_repeats_the_request_until_its_outcome_is_known",
        f"{_AIRFLOW}campaigns/test_tries.py::TestUnknown::test_resend_sends_to_all_recipients",
    ),
    "unknown work with another body is an error": (
        f"{_AIRFLOW}journal/test_changes.py::TestChangedContent::test_unknown_request_fails_the_task_whatever_on_unknown_is",
        f"{_AIRFLOW}campaigns/test_tries.py::TestUnknown::test_resend_with_changed_content_fails_and_sends_nothing",
    ),
    "recipients without an accepted request get the changed text, with a warning": (
        f"{_AIRFLOW}journal/test_changes.py::TestChangedContent::test_recipient_not_yet_sent_to_gets_the_new_content",
        f"{_AIRFLOW}journal/test_changes.py::TestChangedContent::test_accepted_request_is_not_resent_and_the_log_warns",
        f"{_AIRFLOW}campaigns/test_tries.py::TestRetries::test_remaining_recipients_get_the_changed_content",
    ),
}

_RUNS: Mapping[str, Tests] = {
    "a clear is distinguished from a retry by `max_tries`": (
        f"{_AIRFLOW}journal/test_clear.py::test_clear_is_distinguished_from_a_retry_whatever_retries_is",
        f"{_AIRFLOW}journal/test_clear.py::test_plain_retry_is_no_clear",
    ),
    "an empty journal after tries means unknown for all recipients, and is no fresh start": (
        f"{_AIRFLOW}journal/test_clear.py::test_clear_that_drops_the_state_fails_with_the_cause_and_sends_nothing",
        f"{_SENDING}journal/test_journal.py::test_empty_state_is_a_lost_journal_only_after_a_clear_of_earlier_tries",
        f"{_SENDING}journal/test_log.py::TestLostJournal::test_clear_that_left_no_journal_lost_it",
    ),
    "after a clear only what was not accepted is sent": (
        f"{_AIRFLOW}journal/test_clear.py::test_clear_after_success_returns_the_same_result_and_sends_nothing",
        f"{_AIRFLOW}journal/test_clear.py::test_request_not_sent_is_sent_after_a_clear",
        f"{_AIRFLOW}campaigns/test_tries.py::TestClears::test_clear_of_a_finished_campaign_sends_nothing",
    ),
    "with resend_on_clear a clear sends again, once": (
        f"{_AIRFLOW}journal/test_clear.py::test_resend_on_clear_resends_once_per_clear_and_not_in_its_retry",
        f"{_AIRFLOW}campaigns/test_tries.py::TestClears::test_resend_on_clear_sends_to_all_recipients_once_per_clear",
    ),
    "a new run is a new send": (
        f"{_AIRFLOW}journal/test_clear.py::test_new_run_is_a_new_send",
        f"{_AIRFLOW}campaigns/test_idempotency.py::test_new_run_without_a_key_sends_again",
    ),
    "with a key a campaign is sent once over all runs, and needs the database": (
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestIdempotencyKey::test_another_run_sends_nothing_and_reports_the_same",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestIdempotencyKey::test_campaign_without_the_database_sends_nothing_and_is_retried",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestConcurrentRuns::test_second_waits_for_its_retries_and_sends_nothing",
    ),
    "backfills and runs that catch up do not send unless they are allowed to": (
        f"{_AIRFLOW}journal/test_run_guard.py::TestBackfills::test_backfill_is_skipped_and_sends_nothing",
        f"{_AIRFLOW}journal/test_run_guard.py::TestBackfills::test_allow_backfill_sends_in_a_late_backfill",
        f"{_AIRFLOW}journal/test_run_guard.py::TestCatchUpRuns::test_catch_up_run_is_skipped_and_sends_nothing",
        f"{_AIRFLOW}campaigns/test_run_guard.py::test_backfill_is_skipped",
        f"{_AIRFLOW}campaigns/test_run_guard.py::test_catch_up_run_is_skipped",
    ),
    "a run that cannot be shown to be in time counts as a catch-up run": (
        "tests/unit/sending/test_run_guard.py::test_run_whose_successor_is_not_known_counts_as_catch_up_run",
        f"{_AIRFLOW}journal/test_run_guard.py::TestAssetOrTimeSchedules::test_missed_runs_of_the_time_schedule_are_skipped",
    ),
    "a try that fails before its first request records that nothing was sent": (
        f"{_AIRFLOW}journal/test_failed_before_sending.py::test_raising_pre_execute_is_no_lost_journal",
        f"{_AIRFLOW}journal/test_failed_before_sending.py::test_bad_argument_of_a_mapped_operator_is_no_lost_journal",
        f"{_AIRFLOW}journal/test_failed_before_sending.py::TestIdempotentClient::test_code_before_the_client_is_no_lost_journal",
    ),
    "the stored suppression list has the same guard against another database as caps and keyed campaigns": (
        f"{_AIRFLOW}operators/test_suppressions.py::TestOneListForAllWorkers::test_worker_with_another_database_sends_nothing",
        f"{_AIRFLOW}operators/test_suppressions.py::TestOneListForAllWorkers::test_worker_without_a_database_sends_nothing",
    ),
    "runs later than max_lateness do not send": (
        f"{_AIRFLOW}journal/test_run_guard.py::TestLateRuns::test_stale_run_is_skipped_and_sends_nothing",
        f"{_AIRFLOW}campaigns/test_run_guard.py::test_late_run_is_skipped",
    ),
    "what is unknown is inspected and resolved from the command line": (
        f"{_AIRFLOW}cli/test_journal.py::TestList::test_list_has_unresolved_requests_and_the_remedy",
        f"{_AIRFLOW}cli/test_journal.py::TestShow::test_show_has_the_whole_journal",
        f"{_AIRFLOW}cli/test_journal.py::TestResolveSent::test_task_cleared_after_resolve_sent_succeeds_and_sends_nothing",
        f"{_AIRFLOW}cli/test_journal.py::TestResolveNotSent::test_task_cleared_after_resolve_not_sent_sends_once_more",
    ),
}

_STOPPING: Mapping[str, Tests] = {
    "a task that is stopped begins no request": (
        f"{_SENDING}test_shutdown.py::test_no_request_begins_after_the_stop",
        f"{_AIRFLOW}journal/test_stopping.py::test_task_stopped_before_its_request_sends_nothing_and_its_retry_sends",
        f"{_AIRFLOW}campaigns/test_stopping.py::test_stop_before_the_first_request_sends_nothing",
    ),
    "responses are awaited for the grace period, and the rest is recorded as unknown": (
        f"{_SENDING}test_shutdown.py::test_missing_response_is_awaited_no_longer_than_the_grace_period",
        f"{_AIRFLOW}journal/test_stopping.py::test_response_within_the_stop_grace_period_is_recorded",
        f"{_AIRFLOW}journal/test_stopping.py::test_request_without_a_response_is_recorded_as_unknown_before_the_task_ends",
        f"{_AIRFLOW}campaigns/test_stopping.py::test_requests_in_flight_without_a_response_are_recorded_as_unknown",
    ),
    "the provider's own deadline is `execution_timeout` minus the grace period": (
        f"{_SENDING}test_shutdown.py::test_its_own_limit_comes_before_airflow_ends_the_task",
        f"{_AIRFLOW}journal/test_stopping.py::TestExecutionTimeout::test_execution_timeout_counts_from_where_airflow_counts",
    ),
}

_GUARDS: Mapping[str, Tests] = {
    "recipients that `allowed_recipients` does not list are skipped and counted": (
        f"{_AIRFLOW}journal/test_store.py::TestAllowedRecipients::test_recipients_not_allowed_are_left_out_and_counted_before_the_intent",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestStaging::test_recipients_not_allowed_are_left_out_and_counted",
        f"{_AIRFLOW}operators/test_airtime.py::TestAllowedRecipients::test_recipient_not_allowed_is_skipped",
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_only_allowed_recipients_get_a_code",
    ),
    "a number is taken only if it can be read in one way and its country has it": (
        f"{_API}recipients/test_public_numbers.py::test_every_notation_reads_as_the_same_number",
        f"{_API}recipients/test_public_numbers.py::test_mistyped_number_is_refused_or_of_its_own_country",
        f"{_API}recipients/test_public_numbers.py::test_second_number_or_extension_after_a_number_is_refused",
    ),
    "operators, notifiers, commands and sources read the same cells alike": (
        f"{_AIRFLOW}test_odd_cells.py::test_campaign",
        f"{_AIRFLOW}test_odd_cells.py::test_single_send",
        f"{_AIRFLOW}test_odd_cells.py::test_suppression_list_of_a_campaign",
        f"{_AIRFLOW}test_odd_cells.py::test_bulk_lookup",
        f"{_AIRFLOW}test_odd_cells.py::test_contact_sync",
        f"{_AIRFLOW}test_odd_cells.py::test_notifier",
        f"{_AIRFLOW}test_odd_cells.py::test_command",
    ),
    "a line of a header has no line break": (
        f"{_AIRFLOW}campaigns/test_texts.py::TestHeaderLines::test_row_with_line_break_for_the_subject_is_invalid_and_others_are_sent_to",
        f"{_AIRFLOW}cli/test_messages.py::TestSendEmail::test_line_break_in_a_header_sends_nothing",
    ),
    "recipients on the suppression list are left out": (
        f"{_AIRFLOW}campaigns/test_recipients.py::TestSuppression::test_suppressed_recipients_are_left_out_and_counted",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestSuppression::test_unreadable_suppression_list_sends_nothing",
    ),
    "a campaign for more than max_recipients is refused": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxRecipients::test_campaign_for_more_is_refused_before_anything_is_sent",
    ),
    "the first request probes the price, later ones reserve it, and overshoot is bounded": (
        f"{_CAMPAIGN}guards/test_budget.py::test_first_request_goes_alone_to_learn_the_price",
        f"{_CAMPAIGN}guards/test_budget.py::test_pending_request_reserves_the_highest_price_seen",
        f"{_CAMPAIGN}guards/test_budget.py::test_constant_price_is_overspent_only_by_price_probes",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_first_request_goes_alone_and_others_stay_within_max_charge",
    ),
    "max_charge and min_balance end a campaign": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_campaign_stops_before_max_charge_and_names_the_remedy",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMinBalance::test_campaign_stops_before_the_balance_falls_below_min_balance",
    ),
    "the send window counts in the campaign's timezone or a column's": (
        f"{_CAMPAIGN}guards/test_send_window.py::test_window_is_judged_in_the_time_zone_of_the_recipient",
        f"{_AIRFLOW}campaigns/test_send_window.py::test_closed_window_defers_until_it_opens",
        f"{_AIRFLOW}campaigns/test_send_window.py::TestTimezoneColumn::test_recipients_are_sent_to_when_the_window_of_their_timezone_is_open",
    ),
    "the send window opens and closes at its hour over both changes of the clock": (
        f"{_CAMPAIGN}guards/test_send_window.py::TestChangesOfTheClock::test_nine_is_nine_before_and_after",
        f"{_CAMPAIGN}guards/test_send_window.py::TestChangesOfTheClock::test_close_in_repeated_hour_is_found_from_within_that_hour",
        f"{_CAMPAIGN}guards/test_send_window.py::TestChangesOfTheClock::test_close_in_skipped_hour_comes_when_the_clock_jumps",
    ),
    "a window that closes in the middle begins no request and defers the rest": (
        f"{_CAMPAIGN}test_batcher.py::TestSendWindow::test_window_that_closes_midway_stops_further_batches",
        f"{_AIRFLOW}campaigns/test_send_window.py::test_window_that_closes_midway_defers_remaining_recipients",
        f"{_AIRFLOW}campaigns/test_send_window.py::test_resend_is_deferred_when_the_window_closes_while_it_is_under_way",
    ),
    "skip_dnd looks a number up once within lookup_ttl": (
        f"{_CAMPAIGN}guards/test_dnd.py::test_number_is_looked_up_once_within_the_ttl",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_recipients_with_dnd_are_left_out_and_counted",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_number_is_looked_up_once_across_campaigns",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_cached_lookup_expires_after_lookup_ttl",
    ),
    "a number that cannot be looked up is skipped, sent to, or ends the campaign": (
        f"{_CAMPAIGN}guards/test_dnd.py::TestFailedLookup::test_skip_excludes_the_number",
        f"{_CAMPAIGN}guards/test_dnd.py::TestFailedLookup::test_send_sends_to_the_number",
        f"{_CAMPAIGN}guards/test_dnd.py::TestFailedLookup::test_fail_ends_the_campaign",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_number_that_cannot_be_looked_up",
    ),
    "partitions cut by recipient, duplicates meet, and boundaries are stable": (
        f"{_SENDING}test_partitions.py::test_every_recipient_is_in_exactly_one_partition",
        f"{_SENDING}test_partitions.py::test_number_written_in_several_forms_is_in_one_partition",
        f"{_SENDING}test_partitions.py::test_another_process_makes_the_same_partitions",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_each_recipient_is_in_one_partition",
    ),
    "partitions divide rate and budget by share": (
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_budget_is_divided",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_rate_is_divided",
    ),
}

_REPORTS: Mapping[str, Tests] = {
    "reached is one rule, for figures, files, sources, events, pages and the fallback": (
        f"{_DELIVERY}tracking/test_reached.py::test_figures_agree",
        f"{_DELIVERY}tracking/test_reached.py::test_next_channel_leaves_out_only_those_that_were_reached",
    ),
    "a campaign is finished once its task has ended and each accepted or unknown recipient is final": (
        f"{_DELIVERY}tracking/test_unknown_requests.py::TestACampaign::test_waits_for_recipients_of_unknown_outcome",
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinished::test_erasure_of_the_last_open_recipient_starts_no_dag",
    ),
    "a report answered 200 is stored": (
        f"{_DELIVERY}receiver/test_app.py::TestKept::test_it_is_in_the_store_as_it_came_when_the_answer_is_there",
        f"{_DELIVERY}receiver/test_writer.py::test_each_is_told_what_became_of_its_own",
        f"{_DELIVERY}receiver/test_writer.py::test_closing_stores_what_is_in_hand_and_takes_no_more",
    ),
    "a report belongs to the connection whose token or signature proved it": (
        f"{_DELIVERY}receiver/test_app.py::TestCallback::test_404_a_ticket_of_another_connection",
        f"{_DELIVERY}receiver/test_app.py::TestWebhook::test_401_for_another_secret_or_another_body",
        f"{_DELIVERY}callbacks/test_tokens.py::TestReading::test_one_of_another_connection_is_refused",
    ),
    "one response is no verdict for all waits that share a poller": (
        "tests/unit/triggers/test_otp_poller.py::TestEnds::test_stray_rejection_ends_no_wait",
        "tests/unit/triggers/test_otp_poller.py::TestEnds::test_key_that_is_rejected_for_a_moment_ends_no_wait",
        "tests/unit/triggers/test_delivery.py::TestSharedFate::test_arguments_that_cannot_be_used_end_their_own_wait_only",
    ),
    "once a report and its request are both committed the report counts, whatever their order": (
        f"{_DELIVERY}tracking/test_report_beside_record.py::test_report_counts_whichever_transaction_is_held_at_whichever_statement",
        f"{_DELIVERY}tracking/test_report_beside_record.py::test_thousands_of_reports_beside_their_records_are_all_counted",
        f"{_DELIVERY}tracking/model/test_scenes.py::test_scene_comes_out_as_promised",
    ),
    "a report changes nothing of another campaign or connection": (
        f"{_DELIVERY}tracking/test_conditions.py::test_condition_is_about_the_row_of_the_outer_query_at_any_depth",
        f"{_DELIVERY}tracking/test_conditions.py::TestOtherCampaigns::test_report_of_another_campaign_changes_no_recipient",
    ),
    "a recipient that was rejected or erased takes the place of no other": (
        f"{_DELIVERY}tracking/test_request_recipients.py::TestRejectedRecipient::test_does_not_end_the_wait_for_the_accepted_one",
        f"{_DELIVERY}tracking/test_request_recipients.py::TestErasedRecipient::test_takes_the_place_of_nobody_else",
        f"{_DELIVERY}tracking/test_request_recipients.py::TestSecondSpelling::test_squeezes_out_no_third_person",
    ),
    "a permanent failure is a word or code about the recipient, and too many at once list no recipient": (
        f"{_DELIVERY}tracking/test_failure_reasons.py::test_reason_about_the_recipient_is_listed",
        f"{_DELIVERY}tracking/test_failure_reasons.py::test_reason_that_is_not_about_the_recipient_is_not_listed",
        f"{_DELIVERY}tracking/test_report_entries.py::TestBrake::test_more_than_a_small_share_lists_nobody",
        f"{_DELIVERY}tracking/test_report_entries.py::TestBrake::test_it_holds_in_any_order_of_requests_and_reports",
    ),
    "what a report added to the suppression list a later report takes back, and manual entries stay": (
        f"{_DELIVERY}tracking/test_report_entries.py::TestReached::test_newest_report_decides_in_every_order",
        f"{_DELIVERY}tracking/test_report_entries.py::TestReached::test_entry_of_a_person_stays",
    ),
    "one recipient is one row, however a number is written": (
        f"{_DELIVERY}test_reports.py::TestRecipients::test_one_recipient_is_filed_in_one_way",
    ),
    "erasing removes the data of one recipient and of no other recipient": (
        f"{_DELIVERY}tracking/test_erasure.py::TestWho::test_a_number_goes_and_the_counts_stay",
        f"{_DELIVERY}tracking/test_erasure.py::TestWho::test_what_is_not_understood_deletes_nothing",
        f"{_DELIVERY}tracking/test_erasure.py::TestWho::test_an_address_goes_whatever_its_case_and_none_that_ends_like_it",
        f"{_DELIVERY}tracking/test_erasure.py::TestWho::test_of_everybody_else_nothing_is_lost",
        f"{_DELIVERY}tracking/test_erasure.py::TestForms::test_a_report_goes_that_writes_the_number_in_any_form",
        f"{_DELIVERY}tracking/test_erasure.py::TestForms::test_a_report_stays_that_only_looks_like_it",
        f"{_DELIVERY}tracking/test_erasure.py::TestFile::test_nothing_is_left_in_the_file_and_its_log",
    ),
}

_KILLING: Mapping[str, Tests] = {
    "however tries end, no recipient gets a message twice, none is missing, and each that is left is named": (
        f"{_SENDING}test_model.py::{_ONE_SEND}",
        f"{_CAMPAIGN}test_model.py::{_ONE_SEND}",
        f"{_CAMPAIGN}test_model.py::test_try_ended_at_any_request_leaves_the_remaining_recipients_to_the_next",
    ),
    "an outage of the state store loses no message": (
        f"{_AIRFLOW}journal/test_store.py::TestUnreachableState::test_try_that_cannot_store_its_intent_sends_nothing_and_its_retry_sends",
        f"{_AIRFLOW}journal/test_store.py::TestUnreachableState::test_request_whose_result_was_not_stored_is_unknown_to_a_later_try",
    ),
    "a request whose try was killed before its response was recorded is unknown": (
        f"{_AIRFLOW}journal/test_unknown.py::test_request_of_a_try_killed_before_its_result_was_recorded_is_unknown",
    ),
}

_DEFAULTS: Mapping[str, Tests] = {
    "options have the defaults that are promised": (
        f"{_API}test_settings.py::test_defaults_are_the_documented_ones",
        "tests/unit/test_defaults.py::test_defaults_of_a_connection",
        "tests/unit/test_defaults.py::test_defaults_of_a_send",
        "tests/unit/test_defaults.py::test_defaults_of_a_campaign",
        "tests/unit/test_defaults.py::test_default_retention_of_reports_and_lookups",
        "tests/unit/test_defaults.py::test_limits_of_the_receiver",
    ),
    "the receiver accepts a body of at most 256 KiB within 10 seconds": (
        f"{_DELIVERY}receiver/test_app.py::TestRefused::test_413_a_body_that_says_it_is_too_large",
        f"{_DELIVERY}receiver/test_app.py::TestRefused::test_408_a_body_that_does_not_come",
    ),
    "too many recipients for one request are refused, and the error names the campaign operator": (
        f"{_AIRFLOW}operators/test_sms.py::TestConnectionLimits::test_recipients_above_the_limit_of_one_request_fail_and_nothing_is_sent",
        f"{_AIRFLOW}operators/test_email.py::TestConnectionLimits::test_recipients_above_the_limit_of_one_request_fail_and_nothing_is_sent",
    ),
}

_CONTACTS: Mapping[str, Tests] = {
    "`complete` means that the list equals the source, and what prevents that is named": (
        f"{_SYNC}test_row_service.py::test_list_equals_source_with_each_reading",
        f"{_SYNC}test_row_service.py::test_list_equals_source_over_faults_and_kills",
        f"{_SYNC}test_complete.py::test_rejected_row_is_incomplete_now_and_in_the_next_run",
        f"{_SYNC}test_complete.py::test_unknown_creation_is_incomplete",
        f"{_SYNC}test_complete.py::test_source_that_breaks_is_incomplete_as_ended_early",
        f"{_SYNC}test_complete.py::test_blank_key_names_the_number_of_deletions_that_were_not_done",
        f"{_SYNC}test_row_updates.py::test_cleared_cells_stop_the_sync_at_the_first_row_and_name_the_option",
        f"{_SYNC}test_unstored_cells.py::test_new_row_without_a_cell_is_named_and_not_created_again",
    ),
    "no row is created twice but named unknown creations": (
        f"{_SYNC}test_model.py::test_unknown_creations_are_repeated_only_on_request",
        f"{_SYNC}test_at_once.py::test_upsert_that_is_killed_while_source_is_read_leaves_one_unknown_creation",
        f"{_SYNC}test_gone_rows.py::test_service_that_finds_no_row_of_the_map_makes_none_again",
    ),
    "an empty or broken source, a new map beside a full one and a moved base URL delete and double no row": (
        f"{_SYNC}test_attacked.py::test_empty_source_deletes_nothing_whatever_max_deletes_allows",
        f"{_SYNC}test_new_maps.py::test_first_sync_into_a_map_beside_one_with_rows_is_refused",
        f"{_SYNC}test_new_maps.py::test_other_connection_to_the_same_list_is_refused",
        f"{_SYNC}test_new_maps.py::test_keys_in_another_form_create_nothing",
        "tests/unit/contacts/key_map/test_key_map.py::test_other_base_url_is_refused_without_advice_that_costs_rows",
    ),
    "a sync that stopped begins its next run at other rows": (
        f"{_SYNC}test_limits.py::test_25_rejected_rows_together_do_not_keep_the_other_rows_from_being_sent",
        f"{_SYNC}test_limits.py::test_run_after_a_stop_starts_at_other_rows",
        f"{_SYNC}test_limits.py::test_rows_that_always_fail_do_not_take_all_the_time_of_each_run",
    ),
}

PARTS: Mapping[str, Mapping[str, Tests]] = {
    "Outcomes of one request": _OUTCOMES,
    "The journal": _JOURNAL,
    "Later tries": _LATER_TRIES,
    "Clears, new runs, backfills": _RUNS,
    "Stopping": _STOPPING,
    "Guards": _GUARDS,
    "Delivery reports": _REPORTS,
    "Contact syncs": _CONTACTS,
    "Kills and outages": _KILLING,
    "Defaults": _DEFAULTS,
}
"""The sections of the page docs/concepts/promises.md, which is made of this."""
PROMISES: Mapping[str, Tests] = {line: tests for part in PARTS.values() for line, tests in part.items()}

# What must hold on SQLite as on PostgreSQL.
BOTH_DATABASES: Tests = (
    "tests/unit/database/test_migrations.py::test_migrations_run_in_order_and_once",
    "tests/unit/database/test_database.py::test_failed_transaction_stores_nothing",
    "tests/unit/database/test_database.py::test_conflicting_transaction_is_retried",
    "tests/unit/database/test_leases.py::test_stored_values_are_returned",
    "tests/unit/database/test_leases.py::test_one_of_many_threads_acquires_the_lease",
    "tests/unit/database/test_leases.py::test_process_that_lost_its_lease_stores_nothing_more",
    "tests/unit/database/recipients/test_lookups.py::test_lookups_are_returned_while_they_are_recent",
    "tests/unit/database/test_bulk.py::test_every_row_is_stored_as_sqlalchemy_would_store_it",
    f"{_DELIVERY}tracking/test_report_store.py::TestWhatIsKept::test_a_report_is_kept_and_counted",
    f"{_DELIVERY}tracking/test_report_store.py::TestWhatIsKept::test_reports_of_two_connections_are_two",
    f"{_DELIVERY}tracking/test_report_store.py::test_several_at_once_count_everybody_once",
    f"{_DELIVERY}tracking/test_sent_requests.py::TestWhatSendersNote::test_a_later_try_goes_on_with_the_same_send",
    f"{_DELIVERY}tracking/test_counts.py::test_each_campaign_is_counted_by_what_became_of_its_recipients",
    f"{_DELIVERY}tracking/test_events.py::TestCampaignFinished::test_is_told_once_everybody_is_known_to_be_reached_or_not",
    f"{_DELIVERY}tracking/test_retention.py::TestPruning::test_deletes_what_is_old_and_nothing_else",
    f"{_DELIVERY}tracking/test_erasure.py::TestWho::test_a_number_goes_and_the_counts_stay",
)

_CONTACTS = f"{_AIRFLOW}operators/test_contacts.py::"
_OTP = f"{_AIRFLOW}operators/test_otp.py::"

# Each runs as a real task instance in the file of its test.
TASKS: Mapping[str, str] = {
    "BuyAirtimeOperator": (
        f"{_AIRFLOW}operators/test_airtime.py::TestResult::test_result_is_the_purchase_without_the_number"
    ),
    "CreateContactRowOperator": f"{_CONTACTS}TestCreate::test_cells_of_all_types_are_written_by_column_name",
    "DeleteContactRowOperator": f"{_CONTACTS}TestDelete::test_deleted_row_is_gone",
    "EmailCampaignOperator": (
        f"{_AIRFLOW}campaigns/test_sources.py::TestEmail::test_each_recipient_gets_their_own_subject_and_body"
    ),
    "FindOtpsOperator": f"{_OTP}TestGetAndFind::test_all_records_of_a_number_are_found_without_the_number",
    "GetContactRowOperator": f"{_CONTACTS}TestGetRow::test_row_has_its_cells_by_column_name",
    "GetContactTableOperator": f"{_CONTACTS}TestGetTable::test_columns_are_the_result",
    "GetOtpOperator": f"{_OTP}TestGetAndFind::test_record_is_read_by_its_id",
    "BulkPhoneLookupOperator": (
        f"{_AIRFLOW}operators/test_bulk_lookup.py::test_file_has_all_rows_and_each_number_is_paid_for_once"
    ),
    "PhoneLookupOperator": f"{_AIRFLOW}operators/test_lookup.py::test_record_is_the_result_number_included",
    "RequestOtpOperator": f"{_OTP}TestRequest::test_result_is_the_record_and_its_end_without_code_and_number",
    "RevokeOtpOperator": f"{_OTP}TestRevoke::test_passcode_is_useless_afterwards",
    "SendEmailOperator": f"{_AIRFLOW}operators/test_email.py::TestResult::test_result_has_ids_counts_and_cost",
    "SendSmsOperator": f"{_AIRFLOW}operators/test_sms.py::TestResult::test_result_has_ids_counts_and_cost",
    "SmsCampaignOperator": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestOneTry::test_each_recipient_gets_their_own_text_in_one_request"
    ),
    "SyncContactsOperator": f"{_AIRFLOW}contacts/test_sync.py::test_second_sync_sends_only_changed_cells",
    "UpdateContactRowOperator": f"{_CONTACTS}TestUpdate::test_update_changes_only_given_cells",
    "UpsertContactRowOperator": f"{_CONTACTS}TestUpsert::test_upsert_changes_an_existing_row",
    "VerifyOtpOperator": f"{_OTP}TestVerify::test_right_code_is_verified",
    "partitions": f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_each_recipient_is_in_one_partition",
    "DeliverySensor": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestOutcomes::test_sensor_succeeds_with_counts_once_all_statuses_are_final"
    ),
    "OtpStatusSensor": f"{_AIRFLOW}operators/test_otp_sensor.py::TestOutcomes::test_verified_succeeds_with_the_record",
}
