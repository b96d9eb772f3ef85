"""What this provider promises, line by line, and the fast tests that hold it to that.

``tests/unit/test_tiers.py`` sees that each test named here exists and is fast, that pytest collects it, and that no
operator or sensor goes without a real task instance. ``make reference`` makes a page of the table.
"""

from __future__ import annotations

from collections.abc import Mapping

Tests = tuple[str, ...]

_API = "tests/unit/api/"
_DATABASE = "tests/unit/database/"
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
        f"{_API}test_responses.py::test_request_to_an_unreachable_service_is_not_sent",
        f"{_API}test_transport.py::test_refused_connection_is_named",
        f"{_API}test_transport.py::test_unknown_host_is_a_dns_failure",
        f"{_API}test_transport.py::test_host_that_accepts_no_connection_is_a_connect_timeout",
        f"{_API}test_transport.py::test_untrusted_certificate_is_a_tls_failure",
        f"{_API}test_transport.py::test_proxy_that_refuses_the_tunnel_is_a_proxy_failure",
    ),
    "429 by status line or in the body is not sent; 425 and 503 with Retry-After are not, except for airtime": (
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
    "a 4xx but 408, 425, 429, 460 and 499, or a body under 200 that is nothing but an error, is rejected": (
        f"{_API}test_responses.py::test_4xx_is_a_rejection_and_is_never_retried",
        f"{_API}test_responses.py::test_error_body_under_a_success_is_a_rejection",
        f"{_API}test_proof_of_rejection.py::test_status_lines_of_a_closed_connection_are_unknown",
    ),
    "an id, a fault of the server or a word of acceptance anywhere in a body leaves no rejection": (
        f"{_API}test_proof_of_rejection.py::test_error_that_speaks_of_more_is_unknown",
        f"{_API}test_responses.py::test_errors_beside_a_success_or_an_id_anywhere_are_never_a_rejection",
        f"{_API}test_outcome_oracle.py::test_oracle_and_client_agree_on_hand_written_verdicts",
    ),
    "a rejected request is not retried, and a rejected batch of a campaign is bisected unless it concerns all": (
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
    "the retry policy retries tasks that use the hook after `Retry-After`, and never what could act twice": (
        f"{_AIRFLOW}test_retry_policy.py::test_request_that_must_not_be_repeated_fails_without_a_retry",
        f"{_AIRFLOW}test_retry_policy.py::test_retry_after_of_the_service_is_the_delay",
        "tests/unit/hooks/test_retry_policy.py::test_permanent_error_fails_at_once_with_a_reason",
    ),
    "the provider never follows a redirect, so the API key never goes to another host": (
        f"{_API}test_transport.py::test_redirect_is_not_followed_and_the_key_is_not_forwarded",
        f"{_API}test_responses.py::test_redirect_is_not_followed_and_leaves_unsafe_requests_unknown",
    ),
    "plain http is refused, except for this machine or with `allow_http`": (
        f"{_API}test_settings.py::test_invalid_base_url_is_refused",
        f"{_API}test_settings.py::test_allow_http_permits_plain_http",
        f"{_API}test_settings.py::test_loopback_address_is_local",
    ),
    "within an accepted request a recipient is rejected only if an item of `errors` rejects that recipient alone": (
        f"{_API}test_outcome_oracle.py::test_recipient_is_rejected_within_an_accepted_request_only_alone",
        f"{_API}test_proof_of_rejection.py::test_recipient_of_an_accepted_request_is_rejected_only_by_an_item_about_him_alone",
        f"{_CAMPAIGN}test_odd_service.py::test_warning_beside_an_id_leaves_all_recipients_accepted",
    ),
    "an answer counts only for its own request: another reference, number or recipient leaves it unknown": (
        f"{_API}test_echo.py::test_answer_to_another_request_is_unknown",
        f"{_API}test_proof_of_rejection.py::test_response_to_other_recipients_or_another_reference_is_unknown",
        f"{_API}test_odd_answers.py::test_second_answer_is_not_taken_for_that_of_the_next_request",
    ),
    "a client certificate that the server refuses proves that it read nothing, except for airtime": (
        f"{_API}test_tls.py::test_server_that_refuses_the_client_certificate_read_nothing",
        f"{_API}test_tls.py::test_other_alert_is_unknown_although_this_server_read_nothing",
        f"{_API}test_tls.py::test_purchase_that_left_before_the_client_certificate_was_refused_is_unknown_and_named",
    ),
    "a 404 of a gateway or of a wrong base URL is no verdict about a row or a passcode": (
        f"{_API}test_responses.py::test_response_that_may_be_that_of_a_gateway_is_no_verdict",
        f"{_AIRFLOW}operators/test_gateways.py::test_page_of_a_gateway_leaves_the_task_to_its_retries",
        f"{_AIRFLOW}operators/test_gateways.py::test_page_of_a_gateway_does_not_make_a_code_a_wrong_one",
        f"{_AIRFLOW}contacts/test_gone_rows.py::test_update_that_a_gateway_answers_404_creates_no_second_row",
    ),
    "a failure that a retry cannot help fails the task permanently, whatever its `retries` are": (
        f"{_AIRFLOW}operators/test_sms.py::TestRetries::test_permanent_error_fails_without_a_retry",
        f"{_AIRFLOW}operators/test_email.py::TestRetries::test_permanent_error_fails_without_a_retry",
        f"{_AIRFLOW}operators/test_airtime.py::TestRetries::test_permanent_error_fails_without_a_retry",
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_permanent_error_fails_without_a_retry",
        f"{_AIRFLOW}campaigns/test_tries.py::TestAccountThatCannotSend::test_rejected_api_key_fails_the_task_after_one_request",
    ),
    "a `Retry-After` of more than 24 hours is left to the task's retries": (
        f"{_AIRFLOW}test_deferral.py::TestDeferredTry::test_retry_after_beyond_the_longest_deferral_is_left_to_the_retries",
        f"{_AIRFLOW}test_deferral.py::TestDeferredTry::test_task_deferred_again_keeps_its_deadline",
    ),
    "each message states what happened, and shows no key and no value that was sent": (
        f"{_API}test_responses.py::test_no_error_shows_a_value_that_was_sent",
        f"{_API}test_responses.py::test_refused_api_key_is_never_shown",
        f"{_API}test_core.py::test_error_redacts_values_that_the_service_repeats",
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
        f"{_SENDING}test_hashing.py::test_member_hash_depends_on_the_channel",
        f"{_CAMPAIGN}test_loader.py::test_member_of_another_channel_is_another_one",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_message_by_another_channel_is_another_message",
        f"{_AIRFLOW}campaigns/test_tries.py::test_state_holds_nothing_private_and_is_written_once_per_window",
        f"{_AIRFLOW}journal/test_store.py::TestPrivacy::test_stored_journal_holds_nothing_private",
    ),
    "a reference depends on the run, the nonce of the journal and the recipients, and not on their order": (
        f"{_SENDING}test_hashing.py::test_reference_does_not_depend_on_the_order_of_members",
        f"{_SENDING}test_hashing.py::test_reference_depends_on_members_operation_nonce_and_epoch",
        f"{_SENDING}test_hashing.py::test_hashes_differ_under_another_secret_or_identity",
    ),
    "if a source is reordered or edited between tries, each recipient gets the message once": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestRetries::test_source_reordered_and_edited_between_tries_sends_to_each_recipient_once",
        f"{_AIRFLOW}journal/test_changes.py::TestChangedRecipients::test_another_order_or_notation_of_a_number_is_the_same_recipient",
        f"{_SENDING}test_engine.py::test_rerun_sends_only_to_new_recipients_in_any_order",
    ),
    "an author's reference goes to the service, and the provider's into journal and callback URL": (
        f"{_AIRFLOW}journal/test_unknown.py::test_author_s_own_reference_goes_on_the_wire_and_ours_into_the_error",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_send_with_the_author_s_own_reference_is_tracked_by_ours",
    ),
    "requests run ahead of their results by a bounded number": (
        f"{_SENDING}journal/test_writer.py::test_stored_intents_without_results_never_exceed_the_workers",
        f"{_CAMPAIGN}test_model.py::test_kill_at_any_write_leaves_at_most_one_window_unknown",
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
        f"{_AIRFLOW}campaigns/test_tries.py::test_state_holds_nothing_private_and_is_written_once_per_window",
    ),
    "a journal of a version whose format is not known sends nothing and fails": (
        f"{_AIRFLOW}journal/test_store.py::TestUnreachableState::test_journal_of_another_version_sends_nothing",
        f"{_SENDING}journal/test_journal.py::test_journal_of_an_earlier_version_is_refused_with_an_explanation",
        f"{_SENDING}journal/test_log.py::TestUnusableJournal::test_journal_of_an_earlier_version_is_refused_with_an_explanation",
    ),
    "a journal that cannot be read is never taken for an empty one": (
        f"{_SENDING}journal/test_journal.py::test_invalid_journal_is_never_read_as_empty",
        f"{_SENDING}journal/test_log.py::TestUnusableJournal::test_invalid_journal_is_not_read_as_empty",
        f"{_SENDING}test_engine.py::test_unreadable_journal_prevents_the_request",
    ),
    "each mapped task instance has its own journal": (
        f"{_AIRFLOW}journal/test_store.py::test_mapped_instances_have_journals_of_their_own",
        f"{_AIRFLOW}journal/test_clear.py::test_clear_of_one_mapped_instance_resends_only_that_one",
    ),
    "with `[cpaas] journal = database` every way to clear is safe": (
        f"{_AIRFLOW}journal/test_in_database.py::test_clear_that_drops_the_state_returns_the_same_result_and_sends_nothing",
        f"{_AIRFLOW}journal/test_in_database.py::test_campaign_cleared_without_its_state_sends_only_to_remaining_recipients",
        f"{_AIRFLOW}journal/test_in_database.py::test_unknown_request_stays_unknown_after_a_clear_that_drops_the_state",
    ),
    "a journal in the database is refused where workers do not share it, and on another or older database": (
        f"{_AIRFLOW}journal/test_in_database.py::test_default_file_is_refused_where_workers_do_not_share_it",
        f"{_AIRFLOW}journal/test_in_database.py::TestOtherDatabase::test_retry_with_another_database_sends_nothing_and_names_the_cause",
        f"{_AIRFLOW}journal/test_in_database.py::TestOtherDatabase::test_retry_with_an_older_copy_sends_nothing",
    ),
    "the secret of the hashes may be changed if the earlier one stays listed; without it earlier sends are unknown": (
        f"{_AIRFLOW}journal/test_changes.py::TestChangedSecret::test_callback_secrets_may_be_changed_one_after_the_other",
        f"{_AIRFLOW}journal/test_changes.py::TestChangedSecret::test_new_api_key_without_a_callback_secret_sends_nothing",
        f"{_AIRFLOW}journal/test_evidence.py::test_secret_removed_while_deferred_ends_the_try_and_works_once_listed_again",
    ),
    "a single send whose intent does not fit into one value of the task state is refused before it leaves": (
        f"{_SENDING}journal/test_journal.py::TestSize::test_intent_that_would_not_fit_is_refused_before_anything_is_sent",
        f"{_SENDING}journal/test_log.py::test_largest_intent_never_makes_a_segment_too_large_for_mysql",
    ),
    "a request of a campaign has at most 2,500 recipients, also if `recipients_per_request` is higher": (
        "tests/unit/test_defaults.py::test_request_of_a_campaign_has_at_most_2500_recipients",
    ),
    "a write that arrives late hides no stored intent": (
        f"{_SENDING}journal/test_late_writes.py::test_late_writes_hide_no_stored_intent",
        f"{_SENDING}journal/test_late_writes.py::test_failed_write_that_arrives_in_the_next_try_hides_no_intent_of_it",
        f"{_SENDING}journal/test_late_writes.py::TestSingleSends::test_late_copy_hides_no_later_intent",
    ),
    "an older try that is still running can no longer write a journal in the database, and stops": (
        f"{_DATABASE}test_task_journals.py::test_older_try_can_no_longer_write_once_a_newer_one_has_opened_the_journal",
        f"{_AIRFLOW}journal/test_in_database.py::test_try_that_a_newer_one_replaced_starts_no_further_request",
    ),
    "a task instance continues where its journal was begun": (
        f"{_AIRFLOW}journal/test_in_database.py::TestChangedSetting::test_journal_begun_in_the_task_state_continues_there",
        f"{_AIRFLOW}journal/test_in_database.py::TestChangedSetting::test_journal_begun_in_the_database_is_not_replaced_by_one_in_the_task_state",
    ),
    "the commands find a journal in both places": (
        f"{_AIRFLOW}journal/test_in_database.py::TestCommands::test_unknown_request_is_listed_shown_and_resolved",
        f"{_AIRFLOW}cli/test_journal.py::TestList::test_list_has_unresolved_requests_and_the_remedy",
    ),
    "a prune deletes a journal in the database by the time at which a try last opened it": (
        f"{_DATABASE}test_task_journals.py::test_pruning_deletes_journals_that_no_try_has_opened_since",
        f"{_DATABASE}test_task_journals.py::test_journal_that_a_later_try_opened_is_not_pruned",
    ),
    "a journal of another operation is refused": (
        f"{_SENDING}journal/test_journal.py::test_journal_of_another_operation_is_refused_with_an_explanation",
        f"{_AIRFLOW}campaigns/test_sources.py::TestEmail::test_email_campaign_does_not_continue_an_sms_campaign",
    ),
    "a replaced try does not overwrite the report and the results file of the newer one": (
        f"{_AIRFLOW}campaigns/test_replaced.py::test_replaced_try_does_not_overwrite_the_results_file_of_the_new_try",
        f"{_AIRFLOW}campaigns/test_replaced.py::test_try_replaced_after_its_last_write_pushes_no_report",
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
    "after a lost journal nothing is established, and nothing is sent unless `on_unknown` is `resend`": (
        f"{_SENDING}test_runs.py::test_nothing_is_sent_or_established_after_a_lost_journal",
        f"{_AIRFLOW}journal/test_made_again.py::test_no_outcome_is_established_after_a_lost_journal",
        f"{_AIRFLOW}campaigns/test_tries.py::TestClears::test_clear_with_a_lost_journal_and_resend_sends_again",
        f"{_AIRFLOW}campaigns/test_tries.py::TestClears::test_clear_with_a_lost_journal_and_skip_sends_nothing",
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
    "`resend` leaves no recipient missing, once a try succeeds": (
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
    "ten requests in a row of unknown outcome end the try, and its retry sends to the rest": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestUnknown::test_ten_unknown_requests_in_a_row_end_the_try_and_retries_continue",
    ),
    "a try that ends after four resends of unknown outcome fails and names them, and a retry resends again": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestUnknown::test_request_unknown_after_all_resends_is_left_to_the_retries",
        f"{_AIRFLOW}journal/test_unknown.py::test_request_unknown_after_all_resends_is_left_to_the_task_retries",
        f"{_SENDING}test_engine.py::test_resend_limit_ends_the_try_and_a_retry_continues",
    ),
    "a report of a resend proves nothing of the request that was resent": (
        f"{_SENDING}test_engine.py::test_probe_that_finds_the_resend_proves_nothing_of_the_first_request",
        f"{_CAMPAIGN}test_model.py::test_probe_that_finds_the_resend_proves_nothing_of_the_first_request",
        f"{_AIRFLOW}journal/test_unknown.py::test_rejected_resend_proves_nothing_about_the_first_request",
    ),
    "a request that was accepted for some recipients fails the task, and a clear sends to the others alone": (
        f"{_AIRFLOW}journal/test_clear.py::test_partly_accepted_request_fails_and_a_clear_sends_to_remaining_recipients",
        f"{_SENDING}test_engine.py::test_retry_after_a_clear_sends_only_to_those_an_accepted_request_was_rejected_for",
    ),
    "a recipient who was removed from the list is not sent to and stays in the report": (
        f"{_AIRFLOW}journal/test_changes.py::TestChangedRecipients::test_removed_recipient_still_counts_as_sent",
        f"{_CAMPAIGN}test_journal_index.py::TestRecipientsNoLongerInTheSource::test_sent_or_unknown_recipient_stays_in_the_rows",
        f"{_AIRFLOW}campaigns/test_gone.py::test_resend_leaves_out_recipients_removed_from_the_source_and_fails",
    ),
    "a rejected recipient is tried again after a clear, and not in a retry": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_rejected_recipients_are_tried_again_after_a_clear_and_not_in_a_retry",
        f"{_SENDING}journal/test_journal.py::test_clear_retries_rejected_recipients_only",
    ),
    "fix the cause of a permanent failure and clear the task: it sends only what was not sent": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestAccountThatCannotSend::test_api_key_rejected_midway_leaves_remaining_recipients_to_a_clear",
        f"{_AIRFLOW}campaigns/test_tries.py::TestAccountThatCannotSend::test_campaign_fails_without_balance_and_continues_after_a_top_up",
        f"{_AIRFLOW}journal/test_clear.py::test_rejected_request_is_sent_once_after_the_cause_is_corrected_and_cleared",
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
    "the stored suppression list has the same guard against another or emptied database as caps and keyed campaigns": (
        f"{_AIRFLOW}operators/test_suppressions.py::TestOneListForAllWorkers::test_worker_with_another_database_sends_nothing",
        f"{_AIRFLOW}operators/test_suppressions.py::TestOneListForAllWorkers::test_worker_without_a_database_sends_nothing",
        f"{_AIRFLOW}operators/test_suppressions.py::TestOneListForAllWorkers::test_idempotent_client_of_another_worker_sends_nothing",
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
    "a catch-up run is a scheduled run with `catchup=True` that began over five minutes after the next one was due": (
        f"{_AIRFLOW}journal/test_run_guard.py::TestRunInfo::test_run_that_begins_when_its_successor_was_due_for_a_while_catches_up",
        f"{_SENDING}test_run_guard.py::test_manual_run_or_dag_without_catchup_is_no_catch_up",
        f"{_AIRFLOW}journal/test_run_guard.py::TestCatchUpRuns::test_dag_without_catchup_has_no_catch_up_runs",
        f"{_AIRFLOW}journal/test_run_guard.py::TestCatchUpRuns::test_run_cleared_long_after_is_stale_and_no_catch_up_run",
    ),
    "if the timetable names no moment, a run that began more than five minutes late counts as a catch-up run": (
        f"{_SENDING}test_run_guard.py::test_run_that_began_when_it_was_due_needs_no_answer_of_its_timetable",
        f"{_SENDING}test_run_guard.py::test_run_whose_successor_is_not_known_counts_as_catch_up_run",
        f"{_AIRFLOW}journal/test_run_guard.py::TestRunInfo::test_timetable_without_an_answer_makes_a_late_run_a_catch_up_run",
    ),
    "a campaign that started in time is not late after a deferral, and a retry or a clear is checked again": (
        f"{_AIRFLOW}campaigns/test_send_window.py::test_campaign_that_began_in_time_is_not_stale_when_it_resumes",
        f"{_AIRFLOW}campaigns/test_confirmed.py::test_campaign_that_waited_for_an_answer_is_not_late",
        f"{_AIRFLOW}journal/test_run_guard.py::TestLateRuns::test_request_not_sent_is_skipped_in_a_late_retry",
        f"{_AIRFLOW}campaigns/test_run_guard.py::test_late_clear_of_a_partly_sent_campaign_fails_with_its_counts",
    ),
    "a late run that was partly sent fails with its counts, and one that was sent as a whole returns its result": (
        f"{_AIRFLOW}campaigns/test_run_guard.py::test_late_clear_of_a_partly_sent_campaign_fails_with_its_counts",
        f"{_AIRFLOW}campaigns/test_run_guard.py::test_late_clear_of_a_finished_campaign_returns_its_result",
        f"{_AIRFLOW}journal/test_run_guard.py::TestLateRuns::test_late_retry_of_a_partly_sent_task_fails",
    ),
    "an old run of a contact sync or an upsert does not write old cells over newer ones": (
        f"{_AIRFLOW}contacts/test_old_runs.py::test_backfill_is_skipped_unless_the_author_allows_it",
        f"{_AIRFLOW}contacts/test_old_runs.py::test_run_that_catches_up_is_skipped",
        f"{_AIRFLOW}contacts/test_old_runs.py::test_run_that_is_later_than_max_lateness_is_skipped",
    ),
    "two connections, two channels and two keys are campaigns of their own": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_sms_and_whatsapp_under_one_key_are_two_campaigns",
        f"{_AIRFLOW}campaigns/test_keys.py::TestConnections::test_two_connections_are_two_campaigns",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestIdempotencyKey::test_another_key_is_another_campaign_and_the_key_is_a_template",
        f"{_DATABASE}test_registry.py::test_other_connection_channel_or_key_is_another_campaign",
    ),
    "the API key may be rotated under an idempotency key; another base URL is refused": (
        f"{_AIRFLOW}campaigns/test_keys.py::TestConnections::test_rotated_api_key_continues_the_same_campaign",
        f"{_AIRFLOW}campaigns/test_keys.py::TestConnections::test_connection_with_another_base_url_is_refused",
    ),
    "one task at a time runs a campaign with a key, and the lease of a dead task expires": (
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestConcurrentRuns::test_task_fails_while_another_holds_the_lease_and_its_retry_continues",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestConcurrentRuns::test_lease_of_a_dead_task_expires",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestConcurrentRuns::test_task_that_lost_its_lease_sends_nothing_more",
    ),
    "a campaign with a key on a worker with another database, or without one, sends nothing": (
        f"{_AIRFLOW}campaigns/test_keys.py::TestDatabases::test_another_database_is_refused_before_the_first_request",
        f"{_AIRFLOW}campaigns/test_keys.py::TestDatabases::test_retry_on_a_worker_with_another_database_is_refused",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestIdempotencyKey::test_campaign_without_the_database_sends_nothing_and_is_retried",
    ),
    "a new run under a key tries rejected recipients again, once": (
        f"{_AIRFLOW}campaigns/test_keys.py::TestRejectedRecipients::test_new_run_tries_rejected_recipients_again",
        f"{_AIRFLOW}campaigns/test_keys.py::TestRejectedRecipients::test_rejected_recipient_is_requested_once_per_run",
    ),
    "another number of partitions than was recorded is refused before the first request": (
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_another_number_of_partitions_under_the_key_is_refused",
        f"{_SENDING}journal/test_log.py::TestPartitions::test_changed_partition_is_refused_naming_both",
        f"{_DATABASE}test_registry.py::TestPartitions::test_other_number_of_partitions_is_refused_naming_both",
    ),
    "only unresolved requests can be resolved, and not while a try may still write": (
        f"{_AIRFLOW}cli/test_journal.py::TestRefused::test_accepted_request_is_not_resolved_as_not_sent",
        f"{_AIRFLOW}cli/test_journal.py::TestRefused::test_running_task_instance_is_refused",
        f"{_AIRFLOW}cli/test_journal.py::TestRefused::test_request_that_may_be_in_flight_is_refused",
    ),
    "a resolution is followed by the next try, and is in Airflow's audit log": (
        f"{_AIRFLOW}cli/test_journal.py::TestResolveSent::test_task_cleared_after_resolve_sent_succeeds_and_sends_nothing",
        f"{_AIRFLOW}cli/test_journal.py::TestResolveNotSent::test_task_cleared_after_resolve_not_sent_sends_once_more",
        f"{_AIRFLOW}cli/test_journal.py::test_resolution_is_in_the_audit_log",
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
    "a stopped task begins no resend, and its retry continues": (
        f"{_AIRFLOW}journal/test_stopping.py::test_stopped_task_begins_no_resend",
        f"{_AIRFLOW}campaigns/test_stopping.py::test_responses_within_the_grace_period_are_recorded_and_the_retry_continues",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestGuards::test_stopped_task_begins_no_further_request_and_its_retry_continues",
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
        f"{_API}recipients/test_msisdn.py::test_invalid_number_is_refused_with_a_reason",
        f"{_API}recipients/test_msisdn.py::test_zero_in_parentheses_that_decides_between_two_phones_is_refused",
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
        f"{_AIRFLOW}operators/test_email.py::TestRetries::test_permanent_error_fails_without_a_retry",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestTasks::test_odd_subject_and_name_do_not_keep_an_email_back",
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
    "recipients whose lookup failed count as failures, and a retry or a clear looks them up again": (
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_recipients_whose_lookup_fails_count_for_max_failure_ratio",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_lookups_that_fail_within_max_failure_ratio_are_tolerated",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_campaign_fails_if_every_lookup_failed",
    ),
    "after ten failed lookups in a row the operator stops looking up": (
        f"{_CAMPAIGN}guards/test_dnd.py::TestLookupOutage::test_skip_ends_the_try_and_leaves_numbers_that_were_not_looked_up",
        f"{_CAMPAIGN}guards/test_dnd.py::TestLookupOutage::test_send_makes_no_more_lookups",
    ),
    "with `max_failure_ratio` 0 every recipient is sent to, then any failure fails the task": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_recipients_named_in_a_rejection_are_left_out_and_others_sent_to",
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_invalid_rows_count_together_with_rejected_recipients",
    ),
    "above 0 the campaign ends as soon as more recipients are rejected than tolerated": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_too_many_rejections_end_the_campaign_early",
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_rejections_within_max_failure_ratio_succeed",
    ),
    "a campaign ends after `max_identical_rejections` requests in a row that were rejected with the same message": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_campaign_stops_after_20_rejected_requests_in_a_row",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::TestBreaker::test_opens_at_its_limit",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::TestBreaker::test_rejection_of_different_text_restarts_the_count",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::test_same_rejection_again_and_again_ends_the_campaign",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::test_recipients_that_are_named_are_about_themselves_however_many",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::test_limit_can_be_lifted",
    ),
    "a campaign ends when the service has rejected 50 recipients and accepted none": (
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::test_fifty_rejections_without_an_acceptance_end_the_campaign_without_a_limit_too",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::test_limit_can_be_lifted",
    ),
    "a campaign ends when the service refuses the API key, the message itself, or payment": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestAccountThatCannotSend::test_rejected_api_key_fails_the_task_after_one_request",
        f"{_AIRFLOW}campaigns/test_tries.py::TestRejected::test_rejected_sender_ends_the_campaign_without_bisecting",
        f"{_CAMPAIGN}guards/test_circuit_breaker.py::test_insufficient_balance_ends_the_campaign_at_once",
    ),
    "an unreadable row of `suppression_list` fails the task before anything is sent, unless the author skips it": (
        f"{_AIRFLOW}campaigns/test_recipients.py::TestSuppression::test_suppressed_recipients_are_left_out_and_counted",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestSuppression::test_unreadable_suppression_list_sends_nothing",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestSuppression::test_suppression_list_without_the_column_sends_nothing",
    ),
    "`allowed_recipients` applies to each operator, command, notifier and idempotent client that sends": (
        f"{_AIRFLOW}campaigns/test_recipients.py::TestStaging::test_recipients_not_allowed_are_left_out_and_counted",
        f"{_AIRFLOW}operators/test_airtime.py::TestAllowedRecipients::test_recipient_not_allowed_is_skipped",
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_only_allowed_recipients_get_a_code",
        f"{_AIRFLOW}journal/test_store.py::TestAllowedRecipients::test_task_without_allowed_recipients_is_skipped_without_intent_and_request",
        f"{_AIRFLOW}cli/test_messages.py::TestSendSms::test_recipients_not_allowed_are_left_out",
        f"{_AIRFLOW}cli/test_messages.py::TestSendEmail::test_recipients_not_allowed_are_left_out",
        f"{_AIRFLOW}cli/test_messages.py::TestOtp::test_recipient_not_allowed_gets_no_code",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_recipients_that_are_not_allowed_get_nothing",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestOtherSends::test_recipient_that_is_not_allowed_is_counted_and_the_task_continues",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestOtherSends::test_no_send_reaches_a_recipient_that_is_not_allowed",
    ),
    "if no recipient is left by a guard, the task is skipped; a partition of a campaign succeeds": (
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_campaign_whose_recipients_all_have_dnd_is_skipped",
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_sms_and_whatsapp_count_together_for_the_cap",
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_partition_that_a_guard_leaves_empty_succeeds",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestStaging::test_campaign_without_allowed_recipients_is_skipped",
        f"{_AIRFLOW}operators/test_suppressions.py::TestCampaigns::test_campaign_without_another_recipient_is_skipped",
        f"{_AIRFLOW}operators/test_sms.py::TestConnectionLimits::test_task_without_allowed_recipients_is_skipped",
    ),
    "a param without a value never lifts a limit; the word `unlimited` does, for one run": (
        f"{_AIRFLOW}campaigns/test_run_params.py::test_param_without_a_value_is_refused_and_lifts_no_limit",
        f"{_AIRFLOW}campaigns/test_run_params.py::test_unlimited_lifts_each_limit_and_always_lifts_the_send_window",
        "tests/unit/test_rendered_options.py::test_empty_rendering_is_refused_by_every_option_and_lifts_no_limit",
        "tests/unit/test_rendered_options.py::test_only_limits_are_lifted_by_unlimited",
    ),
    "a param that cannot be used fails the task before its first request, and the error shows no text": (
        f"{_AIRFLOW}campaigns/test_run_params.py::test_param_that_cannot_be_used_is_refused_before_the_first_request",
        f"{_AIRFLOW}campaigns/test_run_params.py::test_error_does_not_show_the_value_of_a_wrong_template",
        f"{_AIRFLOW}contacts/test_run_params.py::test_param_that_cannot_be_used_fails_before_the_first_request",
    ),
    'with `on_limit="ask"` what was confirmed is what runs, and a source or price that grew stops again': (
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxRecipients::test_approved_campaign_is_sent_to_the_confirmed_recipients",
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxRecipients::test_more_recipients_than_confirmed_stop_again",
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxCharge::test_higher_price_than_confirmed_stops_again",
        f"{_AIRFLOW}contacts/test_confirmed.py::test_more_deletions_than_confirmed_stop_again",
    ),
    "a rejected or missing confirmation sends nothing further": (
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxRecipients::test_rejected_campaign_fails_without_a_request",
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxRecipients::test_campaign_without_an_answer_in_time_fails",
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxCharge::test_rejected_campaign_sends_nothing_more",
        f"{_AIRFLOW}contacts/test_confirmed.py::test_rejected_sync_changes_nothing",
    ),
    "the form of a confirmation names no recipient and no text": (
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxRecipients::test_form_names_no_recipient_and_no_text",
    ),
    "a confirmation holds for later tries, and no recipient gets the message twice": (
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxCharge::test_approval_outlives_a_kill_and_no_recipient_gets_it_twice",
        f"{_AIRFLOW}campaigns/test_confirmed.py::TestMaxCharge::test_try_that_dies_before_the_answer_is_stored_asks_again",
    ),
    "with `share_rate_limit` all tasks keep to one rate together, and no request leaves without a reservation": (
        "tests/unit/hooks/test_rate_limit.py::test_processes_together_reach_the_limit_without_exceeding_it",
        "tests/unit/hooks/test_rate_limit.py::test_missing_database_prevents_sending",
        "tests/unit/hooks/test_rate_limit.py::test_sync_and_async_clients_share_one_limit",
        f"{_DATABASE}test_rate_limits.py::test_moments_are_never_closer_than_the_rate_allows",
    ),
    "the clients of the hook refuse a request to a recipient that `allowed_recipients` does not list": (
        "tests/unit/hooks/test_hook.py::TestClients::test_client_refuses_recipients_that_are_not_allowed",
        f"{_API}test_requests.py::test_recipients_outside_allowed_recipients_are_refused",
    ),
    "each client object keeps to the connection's rate limit and concurrency by itself": (
        f"{_API}test_client.py::test_requests_start_evenly_spaced",
        f"{_API}test_client.py::test_requests_in_flight_never_exceed_max_concurrency",
    ),
    "a send window that is closed when a resend is due defers it, too": (
        f"{_AIRFLOW}campaigns/test_send_window.py::test_unknown_request_is_not_resent_outside_the_window",
        f"{_AIRFLOW}campaigns/test_send_window.py::test_resend_is_deferred_when_the_window_closes_while_it_is_under_way",
    ),
    "if the service asks to wait, all tasks of a shared rate limit wait": (
        "tests/unit/hooks/test_rate_limit.py::test_hold_delays_other_clients",
        "tests/unit/hooks/test_rate_limit.py::test_hold_of_the_service_is_shared_once",
    ),
    "`max_recipients` is about the whole list, in all partitions together": (
        f"{_AIRFLOW}campaigns/test_idempotency.py::TestPartitions::test_max_recipients_counts_the_recipients_of_all_partitions",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxRecipients::test_recipients_of_earlier_tries_count_for_max_recipients",
    ),
}

_REPORTS: Mapping[str, Tests] = {
    "reached is one rule, for figures, files, sources, events, pages and the fallback": (
        f"{_DELIVERY}tracking/test_reached.py::test_all_figures_agree_on_a_status",
        f"{_DELIVERY}tracking/test_reached.py::test_events_and_their_source_name_only_those_that_were_not_reached",
        f"{_DELIVERY}tracking/test_reached.py::test_next_channel_leaves_out_only_those_that_were_reached",
    ),
    "a campaign is finished once its task has ended and each accepted or unknown recipient is final": (
        f"{_DELIVERY}tracking/test_unknown_requests.py::TestCampaignFinishedEvent::test_campaign_does_not_finish_while_unknown_recipients_are_unreported",
        f"{_DELIVERY}tracking/test_unknown_requests.py::TestCampaignFinishedEvent::test_campaign_does_not_finish_while_accepted_recipients_are_unreported",
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_campaign_does_not_finish_while_its_task_runs",
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_erasure_of_the_last_open_recipient_starts_no_dag",
    ),
    "a report answered 200 is stored": (
        f"{_DELIVERY}receiver/test_app.py::TestAcceptedReport::test_report_is_stored_as_received_before_the_response",
        f"{_DELIVERY}receiver/test_app.py::TestRefusedRequest::test_503_while_the_database_fails_and_200_afterwards",
        f"{_DELIVERY}receiver/test_writer.py::test_each_sender_gets_the_result_of_its_own_report",
        f"{_DELIVERY}receiver/test_writer.py::test_close_stores_pending_reports_and_accepts_no_more",
    ),
    "a report belongs to the connection whose token or signature proved it": (
        f"{_DELIVERY}receiver/test_app.py::TestCallbackEndpoint::test_404_if_the_token_is_of_another_connection",
        f"{_DELIVERY}receiver/test_app.py::TestWebhookEndpoint::test_401_if_the_signature_is_of_another_secret_or_body",
        f"{_DELIVERY}callbacks/test_tokens.py::TestVerifyToken::test_token_of_another_connection_is_refused",
        f"{_DELIVERY}receiver/test_connections.py::test_secret_over_http_reports_only_on_its_connection",
    ),
    "one response is no verdict for all waits that share a poller": (
        "tests/unit/triggers/test_otp_poller.py::TestEnds::test_stray_rejection_ends_no_wait",
        "tests/unit/triggers/test_otp_poller.py::TestEnds::test_key_that_is_rejected_for_a_moment_ends_no_wait",
        "tests/unit/triggers/test_delivery.py::TestSharedFate::test_arguments_that_cannot_be_used_end_their_own_wait_only",
    ),
    "once a report and its request are both committed the report counts, whatever their order": (
        f"{_DELIVERY}tracking/test_report_beside_record.py::test_report_counts_whichever_transaction_is_held_at_whichever_statement",
        f"{_DELIVERY}tracking/test_report_beside_record.py::test_thousands_of_reports_beside_their_records_are_all_counted",
        f"{_DELIVERY}tracking/model/test_scenes.py::test_scenario_is_shown_as_promised",
    ),
    "a report changes nothing of another campaign or connection": (
        f"{_DELIVERY}tracking/test_conditions.py::test_condition_is_about_the_row_of_the_outer_query_at_any_depth",
        f"{_DELIVERY}tracking/test_conditions.py::TestOtherCampaigns::test_report_of_another_campaign_changes_no_recipient",
        f"{_DELIVERY}receiver/test_connections.py::TestReportOfAnotherConnection::test_webhook_report_of_another_connection_changes_nothing",
        f"{_DELIVERY}receiver/test_connections.py::TestReportOfAnotherConnection::test_callback_report_of_another_connection_changes_nothing",
    ),
    "a recipient that was rejected or erased takes the place of no other": (
        f"{_DELIVERY}tracking/test_request_recipients.py::TestRejectedRecipient::test_rejected_recipient_does_not_end_the_wait_for_the_accepted_one",
        f"{_DELIVERY}tracking/test_request_recipients.py::TestErasedRecipient::test_erased_recipient_takes_the_place_of_no_other",
        f"{_DELIVERY}tracking/test_request_recipients.py::TestSecondSpelling::test_second_spelling_takes_the_place_of_no_other_recipient",
    ),
    "a permanent failure is a word or code about the recipient, and too many at once list no recipient": (
        f"{_DELIVERY}tracking/test_failure_reasons.py::test_reason_about_the_recipient_is_listed",
        f"{_DELIVERY}tracking/test_failure_reasons.py::test_reason_that_is_not_about_the_recipient_is_not_listed",
        f"{_DELIVERY}tracking/test_report_entries.py::TestBrakeOfCampaign::test_campaign_with_too_many_failures_lists_no_recipient",
        f"{_DELIVERY}tracking/test_report_entries.py::TestBrakeOfCampaign::test_campaign_brake_holds_in_any_order_of_requests_and_reports",
    ),
    "what a report added to the suppression list a later report takes back, and manual entries stay": (
        f"{_DELIVERY}tracking/test_report_entries.py::TestNewestReport::test_newest_report_decides_in_every_order",
        f"{_DELIVERY}tracking/test_report_entries.py::TestNewestReport::test_manual_entry_stays_after_a_delivery",
    ),
    "one recipient is one row, however a number is written": (
        f"{_DELIVERY}test_reports.py::TestNormaliseRecipient::test_recipient_is_normalised_to_one_form",
        f"{_DELIVERY}tracking/test_request_recipients.py::TestSecondSpelling::test_second_spelling_takes_the_place_of_no_other_recipient",
    ),
    "erasing removes the data of one recipient and of no other recipient": (
        f"{_DELIVERY}tracking/test_erasure.py::TestRecipientToErase::test_erased_number_is_removed_and_the_counts_stay",
        f"{_DELIVERY}tracking/test_erasure.py::TestRecipientToErase::test_unreadable_recipient_is_an_error_and_nothing_is_deleted",
        f"{_DELIVERY}tracking/test_erasure.py::TestRecipientToErase::test_address_is_erased_in_any_case_and_longer_addresses_stay",
        f"{_DELIVERY}tracking/test_erasure.py::TestRecipientToErase::test_erasure_of_an_unknown_number_deletes_nothing",
        f"{_DELIVERY}tracking/test_erasure.py::TestNotationsOfTheRecipient::test_report_with_the_number_in_any_form_is_deleted",
        f"{_DELIVERY}tracking/test_erasure.py::TestNotationsOfTheRecipient::test_report_with_a_similar_number_or_address_stays",
        f"{_DELIVERY}tracking/test_erasure.py::TestDatabaseFile::test_erased_number_is_gone_from_the_file_and_its_log",
    ),
    "a task whose receiver has another database refuses to send; one that cannot reach it sends with a warning": (
        f"{_AIRFLOW}delivery/test_callbacks.py::TestUnreachableReceiver::test_receiver_on_another_database_fails_the_task_and_nothing_is_sent",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestUnreachableReceiver::test_receiver_that_does_not_respond_leaves_the_check_undecided",
    ),
    "the sensor succeeds as soon as `min_delivered` of the accepted recipients are delivered": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestOutcomes::test_sensor_succeeds_once_the_required_share_is_delivered",
        f"{_DELIVERY}tracking/test_reached.py::test_wait_for_a_share_succeeds_only_if_the_message_reached_the_recipient",
    ),
    "the sensor fails at once if no report can arrive": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestAwaitedRecipients::test_send_without_reports_fails_at_once_without_naming_the_database",
        f"{_AIRFLOW}delivery/test_sensor.py::TestOutcomes::test_send_result_without_recipients_fails_or_skips",
        f"{_AIRFLOW}delivery/test_sensor.py::TestAwaitedRecipients::test_unknown_recipients_to_wait_for_without_reports_fail_at_once",
    ),
    "a failed sensor leaves its counts in the XCom `report`, and `soft_fail` skips with the same message": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestOutcomes::test_failed_sensor_pushes_its_counts",
        f"{_AIRFLOW}delivery/test_sensor.py::TestOutcomes::test_soft_fail_skips_with_the_same_message",
    ),
    "while the database is unavailable the sensor waits on": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestFailures::test_unreadable_database_does_not_end_the_wait",
        f"{_AIRFLOW}delivery/test_sensor.py::TestFailures::test_references_are_waited_for_until_the_database_is_readable",
        "tests/unit/triggers/test_delivery.py::TestDatabaseFailures::test_failing_database_is_logged_once_and_does_not_end_the_wait",
    ),
    "the highest rank decides a recipient's status, not the latest report": (
        f"{_DELIVERY}tracking/test_report_store.py::TestRecipientStatus::test_status_with_the_highest_rank_counts_in_any_order",
        f"{_DELIVERY}tracking/test_report_store.py::TestRecipientStatus::test_recipient_with_a_delivery_and_a_failure_is_a_conflict",
        f"{_DELIVERY}tracking/test_report_store.py::TestStoring::test_duplicate_report_raises_only_its_count",
    ),
    "a campaign finishes once, whatever is reported later": (
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_campaign_finishes_once_despite_later_reports",
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_campaign_finishes_at_its_deadline_with_unreported_recipients",
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_concurrent_scans_find_each_event_once",
    ),
    "no event is published twice": (
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_starts_no_second_run_if_the_publication_was_not_recorded",
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_starts_no_second_run_if_several_processes_publish",
    ),
    "no event is lost in a burst: one run for each campaign that finished": (
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_starts_one_run_for_each_campaign_that_finished",
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_more_finished_campaigns_than_one_query_finds_are_all_found",
    ),
    "a paused DAG catches up when it is unpaused": (
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_unpaused_dag_runs_for_events_published_while_it_was_paused",
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_unpaused_dag_runs_for_missed_events_after_a_restart",
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_new_dag_does_not_run_for_events_that_others_missed",
    ),
    "a recipient of a campaign is in one batch of a kind, and in no failure if the campaign had reached it": (
        f"{_DELIVERY}tracking/test_events.py::TestEventBatches::test_recipient_of_two_requests_is_in_one_batch",
        f"{_DELIVERY}tracking/test_events.py::TestEventBatches::test_recipient_with_a_failure_and_a_delivery_is_in_no_batch",
        f"{_DELIVERY}tracking/test_events.py::TestRecipientReachedByAnotherRequest::test_recipient_that_another_request_reached_in_any_spelling_is_no_failure",
        f"{_DELIVERY}tracking/test_events.py::TestEventBatches::test_batch_has_the_failures_since_the_last_one",
        f"{_DELIVERY}tracking/test_events.py::TestEventBatches::test_failures_beyond_the_size_of_a_batch_are_in_the_next_ones",
        f"{_DELIVERY}tracking/test_events.py::TestEventBatches::test_batch_is_never_split",
    ),
    "events hold counts and references, never a number or an address": (
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_events_hold_no_number_and_no_address",
    ),
    "`DeliveryEventSource` has the recipients of the event and nobody else's": (
        f"{_DELIVERY}tracking/test_events.py::TestDeliveryEventSource::test_source_of_a_campaign_has_the_recipients_it_did_not_reach",
        f"{_DELIVERY}tracking/test_events.py::TestDeliveryEventSource::test_source_of_a_batch_has_its_recipients_that_are_still_not_reached",
        f"{_DELIVERY}receiver/test_connections.py::TestEventsOfTwoConnections::test_event_source_has_only_recipients_reported_on_its_connection",
    ),
    "a request that a person resolves counts as resolved": (
        f"{_AIRFLOW}delivery/test_unknown_campaigns.py::test_manual_resolution_ends_the_wait_of_the_campaign",
        f"{_AIRFLOW}delivery/test_unknown_campaigns.py::test_resend_that_is_resolved_as_sent_supersedes_the_requests_that_it_repeats",
    ),
    "the API server looks for events every five seconds, and every 30 while no DAG is scheduled on one": (
        f"{_AIRFLOW}delivery/test_assets.py::TestPublishing::test_scans_every_five_seconds_and_every_thirty_while_no_dag_is_scheduled",
    ),
    "one sensor waits for all mapped task instances together, a mapped sensor for each alone": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestAwaitedRecipients::test_mapped_set_is_waited_for_together",
        f"{_AIRFLOW}delivery/test_sensor.py::TestAwaitedRecipients::test_mapped_instances_wait_for_their_own",
    ),
    "with `track_recipients` a report about any other recipient changes nothing": (
        f"{_DELIVERY}tracking/test_membership.py::TestCallbackUrl::test_callback_url_accepts_only_the_tracked_recipients",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_track_recipients_records_the_recipients",
    ),
    "without `callback_url`, or with a `callback` of your own, reports arrive only by the account's webhook": (
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_send_is_tracked_by_the_account_webhook_alone",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_send_with_the_author_s_own_callback_is_not_tracked",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestDeliveryReportsOfResult::test_account_webhook_reports_single_sends_by_our_reference",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestDeliveryReportsOfResult::test_connection_without_callback_url_has_no_reports",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestReportProbe::test_account_webhook_reports_alone_resolve_requests_of_a_campaign",
    ),
    "a results file of the sensor is complete or not there": (
        f"{_AIRFLOW}delivery/test_sensor.py::TestResultsFile::test_no_partial_results_file_remains",
        "tests/unit/sources/test_results_file.py::test_failed_write_leaves_the_previous_file",
        f"{_AIRFLOW}delivery/test_sensor.py::TestResultsFile::test_results_file_that_cannot_be_written_fails_the_task",
    ),
    "every task that sends messages or airtime has the link to its delivery, a campaign as soon as it begins": (
        f"{_AIRFLOW}delivery/test_callbacks.py::TestDeliveryLink::test_all_sending_operators_have_the_link",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestDeliveryLink::test_link_of_a_campaign_is_there_before_its_first_request",
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
    "the receiver accepts a body of up to 256 KiB, and refuses a longer one or one that takes more than 10 seconds": (
        f"{_DELIVERY}receiver/test_app.py::TestRefusedRequest::test_413_if_the_content_length_is_too_large",
        f"{_DELIVERY}receiver/test_app.py::TestRefusedRequest::test_408_if_the_body_does_not_arrive",
        f"{_DELIVERY}receiver/test_app.py::TestAcceptedReport::test_largest_allowed_body_is_accepted",
        "tests/unit/test_defaults.py::test_limits_of_the_receiver",
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
        f"{_SYNC}test_attacked.py::test_source_that_breaks_deletes_and_clears_nothing",
    ),
    "a sync that stopped begins its next run at other rows": (
        f"{_SYNC}test_limits.py::test_25_rejected_rows_together_do_not_keep_the_other_rows_from_being_sent",
        f"{_SYNC}test_limits.py::test_run_after_a_stop_starts_at_other_rows",
        f"{_SYNC}test_limits.py::test_rows_that_always_fail_do_not_take_all_the_time_of_each_run",
        f"{_SYNC}test_limits.py::test_rows_that_change_before_each_run_do_not_keep_the_last_ones_from_being_sent",
    ),
    "a row belongs to one key map of the list, so that a sync of one map deletes no row of another": (
        f"{_SYNC}test_other_rows.py::test_row_of_another_map_is_not_recorded_and_not_deleted_later",
        f"{_SYNC}test_other_rows.py::test_upsert_does_not_record_the_row_of_another_map",
        "tests/unit/contacts/key_map/test_importing.py::TestOtherMaps::test_row_of_another_map_of_the_list_is_refused",
        f"{_AIRFLOW}cli/test_move_map.py::test_map_whose_rows_another_map_of_the_new_connection_has_is_refused",
    ),
    "a first sync into a map beside one with rows of the same list needs `new_map`": (
        f"{_SYNC}test_new_maps.py::test_first_sync_into_a_map_beside_one_with_rows_is_refused",
        f"{_AIRFLOW}contacts/test_row_by_key.py::test_first_row_of_a_new_map_beside_one_with_rows_needs_new_map",
    ),
    "of two tasks that fill two maps of one list at the same time, one waits or fails": (
        f"{_SYNC}test_new_maps.py::test_first_sync_is_refused_while_an_upsert_uses_another_map",
        f"{_AIRFLOW}contacts/test_row_by_key.py::test_upsert_that_begins_with_a_first_sync_of_another_map_creates_no_row",
    ),
    "a row that an upsert writes while a sync runs is not deleted as missing by that sync": (
        f"{_SYNC}test_at_once.py::test_row_that_an_upsert_adds_while_source_is_read_is_deleted_by_the_next_run_only",
        f"{_SYNC}test_at_once.py::test_row_of_an_upsert_in_flight_when_the_sync_begins_is_deleted_by_the_next_run_only",
    ),
    "a sync that `max_deletes` or `max_changes` stops has sent nothing": (
        f"{_AIRFLOW}contacts/test_sync.py::test_too_many_deletes_stop_before_the_first_request",
        f"{_SYNC}test_complete.py::test_sync_that_is_stopped_by_a_limit_is_incomplete",
    ),
    "an empty source deletes nothing, and cannot be confirmed": (
        f"{_SYNC}test_attacked.py::test_empty_source_deletes_nothing_whatever_max_deletes_allows",
        f"{_AIRFLOW}contacts/test_sync.py::test_source_whose_rows_are_all_without_content_deletes_nothing",
        f"{_AIRFLOW}contacts/test_confirmed.py::test_empty_source_cannot_be_confirmed",
    ),
    "a row that cannot be read, or a blank key, keeps that run from deleting and clearing": (
        f"{_SYNC}test_complete.py::test_blank_key_names_the_number_of_deletions_that_were_not_done",
        f"{_AIRFLOW}contacts/test_sync.py::test_lines_of_delimiters_do_not_switch_deletions_off",
        f"{_AIRFLOW}contacts/test_sync.py::test_row_that_cannot_be_read_keeps_the_run_from_deleting_and_clearing",
    ),
    "a row is created again only if its reading proves that it is gone": (
        f"{_SYNC}test_gone_rows.py::test_failure_to_read_a_row_is_no_proof_that_it_is_gone",
        f"{_SYNC}test_gone_rows.py::test_gone_row_is_created_again_however_the_service_says_it",
        f"{_SYNC}test_row_ownership.py::test_page_of_a_gateway_proves_nothing_although_another_row_can_be_read",
        f"{_AIRFLOW}contacts/test_gone_rows.py::test_upsert_by_id_whose_cells_are_rejected_creates_no_second_row",
        f"{_AIRFLOW}contacts/test_gone_rows.py::test_update_that_a_gateway_answers_404_creates_no_second_row",
    ),
    "updates and deletions of unknown outcome are sent again, and the list equals the source": (
        f"{_SYNC}test_attacked.py::test_source_that_goes_back_after_an_unknown_update_ends_in_the_list",
        f"{_SYNC}test_attacked.py::test_row_that_comes_back_after_an_unknown_deletion_is_in_the_list",
        f"{_SYNC}test_attacked.py::test_update_and_deletion_of_unknown_outcome_are_sent_again",
    ),
    "a sync sends only cells that changed": (
        f"{_AIRFLOW}contacts/test_sync.py::test_second_sync_sends_only_changed_cells",
        f"{_AIRFLOW}contacts/test_row_by_key.py::test_second_upsert_sends_only_changed_cells",
    ),
    "a rejected row is sent again when it changes, or once more if all changed rows were rejected": (
        f"{_AIRFLOW}contacts/test_sync.py::test_rejected_row_comes_again_only_when_it_changed",
        f"{_SYNC}test_attacked.py::test_rejected_row_comes_again_only_when_changed",
        f"{_SYNC}test_limits.py::test_work_of_25_rejected_rows_alone_ends_within_the_ratio_and_is_not_sent_for_ever",
    ),
    "after rejections in a row the sync tries rows from elsewhere, and ends if they are rejected as well": (
        f"{_SYNC}test_limits.py::test_25_rejected_rows_together_do_not_keep_the_other_rows_from_being_sent",
        f"{_SYNC}test_limits.py::test_service_that_rejects_every_row_stops_the_sync_and_marks_none",
    ),
    "after 5 failed requests in a row a sync reads the contact table, and creates nothing more if it cannot": (
        f"{_SYNC}test_limits.py::test_outage_ends_the_sync_without_another_creation",
        f"{_SYNC}test_limits.py::test_service_that_fails_on_every_creation_ends_the_sync_after_few",
    ),
    "a task that lost its lease on the list records nothing more": (
        f"{_SYNC}test_attacked.py::test_lease_taken_over_while_requests_are_under_way_creates_nothing_twice",
        f"{_DATABASE}test_leases.py::test_process_that_lost_its_lease_stores_nothing_more",
    ),
    "a second sync of one list waits for the first": (
        f"{_AIRFLOW}contacts/test_sync.py::test_second_sync_of_one_list_waits_for_the_first",
    ),
    "the cursor passes over no row that was not dealt with": (
        f"{_SYNC}test_model.py::test_cursor_passes_over_no_row_that_was_not_dealt_with",
        f"{_SYNC}test_attacked.py::test_cursor_stays_while_a_creation_is_unknown",
        f"{_SYNC}test_cursor.py::test_larger_value_is_never_passed_over",
        f"{_SYNC}test_limits.py::test_cursor_does_not_pass_over_rejected_rows_that_the_next_run_sends_once_more",
    ),
    "a row below the cursor that failed or was left alone keeps `complete` false until it is sent": (
        f"{_SYNC}test_complete.py::test_invalid_row_does_not_hold_the_cursor_and_stays_named",
        f"{_SYNC}test_complete.py::test_rejected_row_below_the_cursor_stays_named_until_it_is_sent",
        f"{_SYNC}test_complete.py::test_row_that_mode_leaves_alone_stays_named_below_the_cursor_and_is_sent_in_another_mode",
        f"{_SYNC}test_complete.py::test_sync_of_other_columns_does_not_recount_the_rows_below_the_cursor",
    ),
    "`resync`, `retry_rejected`, and commands that change the map have rows below the cursor sent": (
        f"{_SYNC}test_complete.py::test_resync_sends_rows_below_the_cursor",
        f"{_SYNC}test_complete.py::test_retry_rejected_sends_rows_below_the_cursor",
        f"{_SYNC}test_complete.py::test_row_below_the_cursor_is_sent_after_retry_row",
        f"{_SYNC}test_verify.py::test_sync_with_a_cursor_sends_what_was_mended",
        "tests/unit/contacts/key_map/test_importing.py::TestAdopted::test_next_sync_with_a_cursor_reads_all_rows",
    ),
    "rows below the cursor are read once if the mapping or the columns of the list changed": (
        f"{_SYNC}test_attacked.py::test_cursor_of_another_mapping_is_not_used",
        f"{_SYNC}test_cursor.py::test_rows_below_the_cursor_are_read_once_a_column_has_another_type",
        f"{_SYNC}test_cursor.py::test_rows_below_the_cursor_get_a_column_that_the_source_has_later",
    ),
    "if an update clears cells that it did not send, the sync stops at that row and names `row_updates`": (
        f"{_SYNC}test_row_updates.py::test_cleared_cells_stop_the_sync_at_the_first_row_and_name_the_option",
        f"{_SYNC}test_row_updates.py::test_service_that_begins_to_clear_known_cells_amid_a_run_is_noticed_at_once",
        f"{_AIRFLOW}contacts/test_row_updates.py::test_sync_fails_for_good_at_the_first_update_and_repairs_with_whole",
    ),
    "a cell that does not fit its column is never guessed, and the error shows no value": (
        f"{_AIRFLOW}operators/test_contacts.py::TestCreate::test_cells_that_do_not_fit_fail_at_once_and_name_all_faults_but_no_value",
        f"{_AIRFLOW}contacts/test_sync.py::test_invalid_rows_and_duplicate_keys_are_named_without_their_values",
    ),
    "a dry run of a sync sends nothing and shows its requests": (
        f"{_AIRFLOW}contacts/test_sync.py::test_dry_run_sends_nothing_and_previews_masked_rows",
        f"{_AIRFLOW}contacts/test_sync.py::test_dry_run_names_each_row_and_what_would_change_in_it",
    ),
    "an import of a map checks everything before the first write, and Ctrl-C is safe": (
        "tests/unit/contacts/key_map/test_importing.py::TestRefused::test_file_with_a_fault_is_refused_whole",
        "tests/unit/contacts/key_map/test_importing.py::TestLarge::test_fault_on_the_last_line_is_found_before_the_first_write",
        "tests/unit/contacts/key_map/test_importing.py::TestLarge::test_stopped_import_goes_on_and_meanwhile_no_sync_gets_the_map",
    ),
    "a map is moved to another list only if that has more than half of a sample of its rows": (
        f"{_AIRFLOW}cli/test_move_map.py::test_list_without_the_rows_is_refused",
        f"{_AIRFLOW}cli/test_move_map.py::test_list_with_half_of_the_rows_is_refused",
        f"{_AIRFLOW}cli/test_move_map.py::test_renamed_connection_keeps_its_rows",
    ),
    "`verify` mends no row that is gone if more than `--max-gone` rows are gone": (
        f"{_SYNC}test_verify.py::test_many_rows_gone_stop_the_mending_of_all",
        f"{_SYNC}test_verify.py::test_drift_is_counted_by_column_and_mended_by_the_next_sync",
    ),
    'with `on_invalid_cell="skip_cell"` the other cells are sent, and the wrong cell stays as it is': (
        f"{_AIRFLOW}contacts/test_invalid_cells.py::test_other_cells_of_a_row_are_sent_and_the_invalid_one_is_left_unchanged",
        f"{_AIRFLOW}contacts/test_invalid_cells.py::test_row_is_named_in_every_run_without_a_request_until_corrected",
    ),
    "a response with another row's id or cells leaves the creation unknown": (
        f"{_SYNC}test_other_rows.py::test_row_of_an_earlier_run_is_not_recorded_for_a_new_key",
        f"{_SYNC}test_other_rows.py::test_two_rows_of_one_run_with_one_id_are_both_unknown",
    ),
    "a row of which the service stored not all cells is named and not created again": (
        f"{_SYNC}test_unstored_cells.py::test_new_row_without_a_cell_is_named_and_not_created_again",
        f"{_SYNC}test_unstored_cells.py::test_update_without_a_cell_is_named",
    ),
    "`retry-row` leaves a row as it is while a task sends it": (
        f"{_AIRFLOW}contacts/test_rejected.py::test_retry_of_a_row_whose_request_is_in_flight_changes_nothing",
    ),
    "a creation is resolved only to a row that exists and that no other key has": (
        "tests/unit/contacts/key_map/test_resolution.py::test_row_that_is_not_there_is_refused",
        "tests/unit/contacts/key_map/test_resolution.py::test_row_of_another_key_is_refused",
        "tests/unit/contacts/key_map/test_resolution.py::test_row_of_another_key_is_refused_in_whatever_case_its_id_is_written",
        "tests/unit/contacts/key_map/test_resolution.py::test_row_of_another_map_of_the_list_is_refused",
    ),
    "an export of a map is consistent: an upsert meanwhile ends it": (
        "tests/unit/contacts/key_map/test_map_files.py::TestConcurrentExport::test_upsert_during_the_export_ends_it",
        "tests/unit/contacts/key_map/test_map_files.py::TestConcurrentExport::test_running_sync_is_waited_for",
    ),
    "a task instance of an operator for one row creates at most one row, unless a resend is asked for": (
        f"{_AIRFLOW}operators/test_contacts.py::TestCreate::test_unknown_creation_is_not_repeated",
        f"{_AIRFLOW}operators/test_contacts.py::TestUpsert::test_unknown_creation_is_not_repeated",
        f"{_AIRFLOW}operators/test_contacts.py::test_rows_created_are_as_many_as_the_tasks_say",
        f"{_AIRFLOW}journal/test_retries.py::test_retry_after_a_send_returns_the_same_result_without_a_request",
        f"{_AIRFLOW}journal/test_clear.py::test_clear_after_success_returns_the_same_result_and_sends_nothing",
    ),
    "the results file of a retry has the rows of earlier tries, also of a try that was killed": (
        f"{_SYNC}test_run_totals.py::test_retry_after_kills_has_one_line_for_each_row_that_the_run_changed",
        f"{_AIRFLOW}contacts/test_tries.py::test_retry_covers_what_earlier_tries_changed",
        f"{_AIRFLOW}contacts/test_tries.py::test_retry_that_cannot_read_its_source_leaves_the_file_of_the_earlier_try",
    ),
    "with `max_duration` the task ends in time and succeeds, and the next run continues": (
        f"{_SYNC}test_attacked.py::test_max_duration_leaves_rows_for_the_next_run_and_fails_nothing",
        f"{_AIRFLOW}contacts/test_sync.py::test_max_duration_ends_the_task_in_success_and_the_next_run_continues",
    ),
    "a sync that changed the list publishes an event of `contacts_changed`": (
        f"{_AIRFLOW}contacts/test_sync.py::test_change_is_published_as_an_asset_event",
    ),
    "a resync sends every row once and creates none twice": (
        f"{_SYNC}test_attacked.py::test_resync_sends_every_row_once_although_it_is_killed",
    ),
}

_MONEY: Mapping[str, Tests] = {
    "the first requests go alone to learn the price, and at a constant price only they may exceed `max_charge`": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_only_the_first_request_may_exceed_max_charge_and_has_one_recipient",
        f"{_CAMPAIGN}guards/test_budget.py::test_constant_price_is_overspent_only_by_price_probes",
        f"{_CAMPAIGN}guards/test_spending.py::test_false_charges_overspend_max_charge_only_by_price_probes",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_first_request_goes_alone_and_others_stay_within_max_charge",
    ),
    "with `price_per_page`, `max_charge` holds from the first request": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_first_request_stays_within_max_charge_if_the_price_is_given",
        f"{_CAMPAIGN}guards/test_budget.py::test_author_price_limits_the_first_request",
    ),
    "`min_balance` needs a response with the balance first, also with `price_per_page`": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMinBalance::test_campaign_with_a_price_stops_exactly_at_min_balance",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMinBalance::test_balance_below_it_already_costs_one_message_at_most",
        f"{_CAMPAIGN}guards/test_budget.py::TestMinBalance::test_author_price_alone_lets_one_recipient_go_first",
        f"{_CAMPAIGN}guards/test_budget.py::TestMinBalance::test_min_balance_with_max_charge_and_author_price_still_probes",
    ),
    "`max_charge` counts all tries, and with `resend_on_clear` all sends to all recipients": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_charge_of_earlier_tries_counts",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_charge_before_a_resend_on_clear_counts",
    ),
    "a request of unknown outcome counts as charged": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_unknown_requests_count_as_charged",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_unknown_requests_count_as_charged_in_later_tries",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_each_resend_of_unknown_outcome_counts_as_charged",
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_unknown_request_counts_as_charged_after_its_resend",
        f"{_CAMPAIGN}guards/test_budget.py::TestMinBalance::test_requests_of_unknown_outcome_count_as_charged",
    ),
    "of charge, fall of the balance and `price_per_page` the highest counts": (
        f"{_CAMPAIGN}guards/test_spending.py::TestEvidence::test_author_price_beats_lower_charge",
        f"{_CAMPAIGN}guards/test_spending.py::TestEvidence::test_higher_charge_beats_author_price",
        f"{_CAMPAIGN}guards/test_spending.py::TestEvidence::test_fall_of_balance_beyond_charge_counts",
        f"{_AIRFLOW}campaigns/test_budget.py::TestChargeThatIsNoEvidence::test_balance_is_believed_over_a_lower_charge",
    ),
    "a charge below zero, of no number, or of 0 while the balance falls is left aside": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestChargeThatIsNoEvidence::test_balance_is_believed_instead",
        f"{_AIRFLOW}campaigns/test_budget.py::TestChargeThatIsNoEvidence::test_report_names_no_such_charge",
        f"{_CAMPAIGN}guards/test_budget.py::test_zero_charge_with_falling_balance_counts_as_missing_charge",
        f"{_CAMPAIGN}guards/test_spending.py::TestEvidence::test_missing_charge_is_replaced_by_fall_of_balance",
    ),
    "a price of 0 is a price": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestPriceUnknown::test_price_of_nought_is_a_price",
        f"{_CAMPAIGN}guards/test_budget.py::TestPriceOfZero::test_price_of_zero_is_known_after_one_response",
    ),
    "without charges one request goes at a time, and a campaign without charge and balance ends": (
        f"{_CAMPAIGN}guards/test_budget.py::TestMissingCharge::test_balance_limits_one_request_at_a_time_and_is_logged_once",
        f"{_AIRFLOW}campaigns/test_budget.py::TestPriceUnknown::test_bound_holds_without_charge",
        f"{_AIRFLOW}campaigns/test_budget.py::TestPriceUnknown::test_missing_charge_ends_the_campaign_with_on_missing_charge_fail",
        f"{_AIRFLOW}campaigns/test_budget.py::TestPriceUnknown::test_campaign_ends_if_responses_have_neither_charge_nor_balance",
    ),
    "raise the limit and clear the task: only the rest is sent": (
        f"{_AIRFLOW}campaigns/test_budget.py::TestMaxCharge::test_clear_with_a_raised_max_charge_sends_to_remaining_recipients",
    ),
    "a dry run makes no request, and estimates the cost with `price_per_page`": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_dry_run_makes_no_request_and_does_not_apply_the_cap",
        f"{_AIRFLOW}test_task_log.py::TestCampaign::test_log_of_a_dry_run_has_its_figures",
        f"{_AIRFLOW}campaigns/test_texts.py::TestEncoding::test_dry_run_has_what_the_option_would_save",
    ),
    "a purchase is made at most once per task instance, unless a resend is asked for": (
        f"{_AIRFLOW}operators/test_airtime.py::TestRetries::test_purchase_not_made_is_made_by_the_next_try",
        f"{_AIRFLOW}operators/test_airtime.py::TestRetries::test_unavailable_service_proves_nothing_about_money",
        f"{_AIRFLOW}journal/test_unknown.py::test_duplicate_response_to_a_first_request_is_no_purchase",
        f"{_AIRFLOW}operators/test_airtime.py::TestRetries::test_unknown_purchase_is_not_repeated",
        f"{_AIRFLOW}journal/test_retries.py::test_retry_after_a_send_returns_the_same_result_without_a_request",
        f"{_AIRFLOW}journal/test_retries.py::test_purchase_keeps_its_first_amount",
    ),
    "after the status `duplicate` for one request nothing was bought, and the task fails": (
        f"{_AIRFLOW}operators/test_airtime.py::TestRetries::test_duplicate_response_fails_and_the_error_says_nothing_was_bought",
    ),
    "a bulk lookup looks up each number of a list once, and its retry only those that were not found": (
        f"{_AIRFLOW}operators/test_bulk_lookup.py::test_file_has_all_rows_and_each_number_is_paid_for_once",
        f"{_AIRFLOW}operators/test_bulk_lookup.py::test_retry_looks_up_only_remaining_numbers",
        f"{_AIRFLOW}operators/test_bulk_lookup.py::TestPaidForOnce::test_lookups_are_stored_while_others_are_still_made",
    ),
    "bulk lookups, `skip_dnd` and the command share their lookups for `lookup_ttl`": (
        f"{_AIRFLOW}operators/test_bulk_lookup.py::test_campaign_uses_the_same_lookups",
        f"{_AIRFLOW}operators/test_bulk_lookup.py::test_old_lookups_are_made_again",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestDoNotDisturb::test_number_is_looked_up_once_across_campaigns",
        f"{_AIRFLOW}cli/test_messages.py::TestLookup::test_cache_is_that_of_bulk_lookups",
        f"{_CAMPAIGN}guards/test_dnd.py::test_expired_lookup_is_repeated",
    ),
    "a bulk lookup ends before it exceeds `max_lookups`": (
        f"{_AIRFLOW}operators/test_bulk_lookup.py::test_limit_of_lookups_ends_the_task_before_it_is_exceeded",
    ),
    "`PhoneLookupOperator` does not repeat a lookup whose response is unreadable, because it may have been charged": (
        f"{_AIRFLOW}operators/test_lookup.py::test_paid_lookup_is_not_repeated",
    ),
    "lookups are found after a change of `callback_secret` if the old one stays listed": (
        f"{_AIRFLOW}operators/test_bulk_lookup.py::TestPaidForOnce::test_lookups_from_before_a_new_callback_secret_are_found",
        f"{_AIRFLOW}cli/test_messages.py::TestLookup::test_new_secret_of_the_connection_keeps_the_cache",
    ),
    "a number that occurs again in a list, or was looked up by the command line before, is not charged again": (
        f"{_AIRFLOW}cli/test_messages.py::TestLookup::test_number_is_charged_once_and_masked",
        f"{_AIRFLOW}operators/test_bulk_lookup.py::TestPaidForOnce::test_number_that_comes_again_later_in_the_list_is_looked_up_once_without_a_cache",
    ),
}

_ACCOUNT: Mapping[str, Tests] = {
    "after `airflow cpaas stop` no request of the connection leaves that changes something or costs money": (
        f"{_AIRFLOW}account/test_stop.py::TestCampaigns::test_stop_in_the_middle_fails_without_a_retry_and_a_clear_sends_the_rest_once",
        f"{_AIRFLOW}account/test_stop.py::TestOtherRequests::test_single_request_is_not_sent_and_a_clear_sends_it_once",
        f"{_AIRFLOW}account/test_stop.py::TestOtherRequests::test_contact_sync_ends_at_once_and_a_clear_creates_each_row_once",
        f"{_AIRFLOW}account/test_stop.py::TestOtherRequests::test_bulk_lookup_ends_and_says_what_was_looked_up",
        f"{_AIRFLOW}account/test_stop.py::TestOtherRequests::test_idempotent_client_fails_the_task_without_a_retry",
    ),
    "about a second after the stop no request leaves any process": (
        "tests/unit/hooks/test_stops_processes.py::test_no_request_leaves_three_processes_after_the_interval",
        f"{_AIRFLOW}account/test_stop.py::TestDatabase::test_state_is_read_once_an_interval_for_all_clients_of_a_process",
    ),
    "requests in flight at a stop are recorded": (
        f"{_AIRFLOW}account/test_stop.py::TestCampaigns::test_requests_in_flight_are_recorded_as_accepted",
    ),
    "reads of a stopped connection still work": (
        f"{_AIRFLOW}account/test_stop.py::TestOtherRequests::test_reads_of_a_hook_client_still_work_and_sends_do_not",
        f"{_AIRFLOW}account/test_stop.py::TestDatabase::test_client_that_only_reads_does_not_touch_the_database",
    ),
    "while the database does not answer, the last state of the stops counts for 10 seconds, and then nothing is sent": (
        f"{_AIRFLOW}account/test_stop.py::TestDatabase::test_last_state_counts_for_ten_seconds_while_the_database_cannot_be_read",
        f"{_AIRFLOW}account/test_stop.py::TestDatabase::test_unreadable_database_prevents_sending_and_leaves_a_retry",
        f"{_AIRFLOW}account/test_stop.py::TestDatabase::test_alert_is_sent_although_the_database_is_unreadable",
    ),
    "a stop is refused where tasks have recorded another database, and warns where each machine has its own": (
        f"{_AIRFLOW}cli/test_stops.py::test_stop_is_refused_where_tasks_use_another_database",
        f"{_AIRFLOW}cli/test_stops.py::test_files_of_other_machines_are_named",
    ),
    "notifiers keep their alerts during a stop": (
        f"{_AIRFLOW}account/test_stop.py::TestOtherRequests::test_notifier_keeps_its_alert_for_the_next_notification",
    ),
    "at the prices seen, the requests of all DAGs together cost no more than `daily_budget` and `monthly_budget`": (
        f"{_AIRFLOW}account/test_budget.py::TestCampaigns::test_campaigns_of_all_dags_share_one_budget",
        f"{_AIRFLOW}account/test_budget.py::TestCampaigns::test_monthly_budget_holds_beside_a_larger_daily_one",
        f"{_AIRFLOW}account/test_budget.py::TestProcesses::test_ten_processes_at_once_do_not_exceed_the_budget",
    ),
    "the log warns once when 80 % of a budget are reached": (
        f"{_AIRFLOW}account/test_budget.py::TestCampaigns::test_log_has_one_warning_at_four_fifths",
    ),
    "for a budget, what was rejected or not sent costs nothing, and what is unknown counts": (
        f"{_AIRFLOW}account/test_budget.py::TestCampaigns::test_request_that_was_not_sent_costs_nothing",
        f"{_AIRFLOW}account/test_budget.py::TestCampaigns::test_request_of_unknown_outcome_counts",
        f"{_AIRFLOW}account/test_budget.py::TestProcesses::test_kill_between_reservation_and_settlement_counts_the_request_once",
        f"{_AIRFLOW}account/test_budget.py::TestCampaigns::test_next_request_has_one_recipient_until_one_shows_the_price",
    ),
    "with a budget, passcodes and lookups need their price, and airtime counts its amount": (
        f"{_AIRFLOW}account/test_budget.py::TestSingleRequests::test_passcode_needs_a_price_and_counts_it",
        f"{_AIRFLOW}account/test_budget.py::TestSingleRequests::test_lookups_of_a_hook_client_count_and_reads_are_free",
        f"{_AIRFLOW}account/test_budget.py::TestSingleRequests::test_airtime_counts_its_amount",
        f"{_AIRFLOW}account/test_budget.py::TestSingleRequests::test_lookup_needs_a_price",
    ),
    "if the database of a budget cannot be used, nothing is sent": (
        f"{_AIRFLOW}account/test_budget.py::TestSingleRequests::test_unusable_database_prevents_sending",
    ),
}

_RECIPIENTS: Mapping[str, Tests] = {
    "recipients are deduplicated: one that occurs twice, in whatever form, gets one message": (
        f"{_AIRFLOW}campaigns/test_tries.py::TestOneTry::test_duplicates_are_sent_once_and_counted",
        f"{_AIRFLOW}operators/test_sms.py::TestResult::test_recipient_named_twice_gets_one_message",
        f"{_AIRFLOW}operators/test_email.py::TestResult::test_address_in_another_case_is_the_same_recipient",
        f"{_CAMPAIGN}test_loader.py::test_number_written_in_several_forms_is_one_recipient",
    ),
    "if a national and an international reading are both valid, the number is refused": (
        f"{_API}recipients/test_msisdn.py::test_number_that_is_valid_as_a_national_and_as_an_international_one_is_refused",
        f"{_API}recipients/test_msisdn.py::test_invalid_number_is_refused_with_a_reason",
        f"{_API}recipients/test_msisdn.py::test_zero_in_parentheses_that_decides_between_two_phones_is_refused",
        f"{_API}recipients/test_public_numbers.py::test_mistyped_number_is_refused_or_of_its_own_country",
    ),
    "an invalid recipient of a single send fails the task, and nothing is sent": (
        f"{_AIRFLOW}operators/test_sms.py::TestRetries::test_invalid_recipients_fail_without_a_retry_and_nothing_is_sent",
        f"{_AIRFLOW}operators/test_email.py::TestRetries::test_invalid_recipients_fail_without_a_retry_and_nothing_is_sent",
    ),
    "a row without a value for a placeholder and without a default is invalid": (
        f"{_AIRFLOW}campaigns/test_source_rows.py::test_row_with_a_word_for_a_missing_value_and_no_default_is_invalid",
        f"{_AIRFLOW}campaigns/test_sources.py::TestPlaceholders::test_substitution_default_fills_an_empty_cell",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_text_without_a_value_is_refused_before_it_is_sent",
    ),
    "a placeholder without a column, or a missing column, is an error before anything is sent": (
        f"{_AIRFLOW}campaigns/test_sources.py::TestPlaceholders::test_placeholder_without_a_column_is_refused_and_nothing_is_sent",
        f"{_AIRFLOW}campaigns/test_sources.py::test_column_that_is_missing_is_named",
    ),
    "words for a missing value are not sent as text, and are counted": (
        f"{_AIRFLOW}campaigns/test_source_rows.py::test_words_for_a_missing_value_are_counted_and_shown",
        f"{_CAMPAIGN}test_content.py::test_default_fills_a_cell_that_recipients_cannot_read",
    ),
    "a record without any content is no row": (
        f"{_AIRFLOW}campaigns/test_source_rows.py::test_lines_of_delimiters_at_the_end_of_an_export_are_no_rows",
        f"{_AIRFLOW}campaigns/test_source_rows.py::test_lines_of_delimiters_do_not_use_up_the_tolerance",
    ),
    "a file that changes while it is read fails the try before anything is sent": (
        f"{_AIRFLOW}campaigns/test_source_rows.py::test_file_that_is_still_written_sends_nothing",
        "tests/unit/sources/test_changed_files.py::test_file_that_is_written_while_it_is_read_is_noticed",
    ),
    "every kind of source sends the same messages": (
        f"{_AIRFLOW}campaigns/test_sources.py::test_every_kind_of_source_sends_the_same_messages",
        f"{_AIRFLOW}campaigns/test_sources.py::test_source_of_another_kind_after_a_clear_sends_nothing_again",
    ),
    "an argument that has no value after rendering fails the task before anything is sent": (
        f"{_AIRFLOW}test_native_rendering.py::test_argument_that_renders_to_nothing_is_refused_and_not_left_out",
        f"{_AIRFLOW}test_messages_name_the_cause.py::test_value_that_rendered_to_none_is_named",
    ),
    "values that an upstream task passes by `expand` are data and are never rendered as templates": (
        f"{_AIRFLOW}test_mapped_data.py::test_data_through_expand_kwargs_is_not_rendered",
        f"{_AIRFLOW}test_mapped_data.py::test_data_through_expand_is_not_rendered",
    ),
    "with native rendering any text stays as it is written": (
        f"{_AIRFLOW}test_native_rendering.py::test_text_that_looks_like_python_is_sent_as_it_is_written",
        f"{_AIRFLOW}test_native_rendering.py::test_code_keeps_its_leading_nought",
    ),
    '`encoding="gsm7"` replaces typography only if the whole text is GSM-7 then': (
        f"{_API}test_text_sms.py::test_text_is_written_in_gsm7_only_as_a_whole",
        f"{_API}test_text_sms.py::test_character_with_a_meaning_of_its_own_is_not_replaced",
        f"{_AIRFLOW}operators/test_sms.py::TestTexts::test_option_leaves_a_text_with_other_characters_and_the_log_has_their_number",
    ),
    "the operator checks before the first request that it can write the results file": (
        f"{_AIRFLOW}campaigns/test_results.py::test_unwritable_path_fails_before_any_request",
        f"{_AIRFLOW}campaigns/test_results.py::test_full_disk_fails_before_any_request",
    ),
    "the results file has one line for each row, also after a task that failed midway": (
        f"{_AIRFLOW}campaigns/test_results.py::test_results_file_has_every_row_with_its_outcome",
        f"{_AIRFLOW}campaigns/test_results.py::test_results_file_is_complete_after_a_task_that_failed_midway",
    ),
    "if writing the results file fails later, a retry only writes it": (
        f"{_AIRFLOW}campaigns/test_results.py::test_disk_that_fills_up_fails_with_the_counts_and_a_retry_only_writes",
    ),
    "a failed task leaves the report with the recipients not sent to": (
        f"{_AIRFLOW}campaigns/test_results.py::test_report_of_a_failed_try_counts_recipients_not_sent_to",
        f"{_AIRFLOW}test_task_log.py::TestCampaign::test_log_of_a_failed_campaign_has_all_counts",
    ),
    "two sends of one task differ by operation, recipient and `idempotency_key`": (
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_same_recipient_and_content_again_sends_nothing_and_returns_the_first_result",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_other_content_for_the_recipient_fails_the_task_and_sends_nothing",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_idempotency_key_allows_both_and_a_retry_repeats_neither",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_content_that_changes_between_tries_is_not_sent_again",
        f"{_SENDING}test_hashing.py::test_member_hash_depends_on_the_operation",
    ),
    "the idempotent client gives `@task` functions what operators give": (
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestLoop::test_retry_after_a_failure_in_the_loop_sends_only_remaining_recipients",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestUnknownOutcome::test_unknown_request_fails_the_task_without_a_retry_by_default",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestUnknownOutcome::test_killed_task_leaves_its_request_unknown_for_the_retry",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestGuards::test_backfill_is_skipped_unless_it_is_allowed",
        f"{_AIRFLOW}operators/test_idempotent_client.py::TestGuards::test_stale_run_is_skipped",
    ),
    "a callback, a sender or a subject with a line break fails the task before anything is sent": (
        f"{_AIRFLOW}campaigns/test_texts.py::TestHeaderLines::test_line_break_in_a_field_of_all_ends_the_campaign_before_a_request",
        f"{_AIRFLOW}campaigns/test_texts.py::TestHeaderLines::test_row_with_line_break_for_the_subject_is_invalid_and_others_are_sent_to",
        f"{_AIRFLOW}cli/test_messages.py::TestSendEmail::test_line_break_in_a_header_sends_nothing",
        f"{_API}test_requests.py::test_field_that_breaks_the_contract_is_named",
    ),
    "a stray quote makes its own row invalid and swallows no other": (
        "tests/unit/sources/test_csv.py::TestLineBreaksInCells::test_stray_quote_with_a_later_partner_hides_no_row",
        "tests/unit/sources/test_csv.py::TestLineBreaksInCells::test_stray_quote_before_the_number_hides_no_row",
        "tests/unit/sources/test_csv.py::test_unclosed_quote_does_not_swallow_a_large_file",
    ),
    "an extra that the provider does not know never reaches the service": (
        "tests/unit/hooks/test_connection.py::TestExtras::test_unknown_extras_are_named_without_their_values_and_go_nowhere",
    ),
    "email addresses that differ only in upper and lower case are one recipient": (
        f"{_SENDING}test_hashing.py::test_capitals_in_an_address_are_the_same_recipient",
        f"{_AIRFLOW}journal/test_retries.py::test_address_in_other_capitals_is_not_sent_to_again",
        f"{_API}recipients/test_reader.py::test_recipients_are_compared_without_plus_and_case",
    ),
    "numbers of results files are read as the same numbers in every region": (
        "tests/unit/sources/test_results_file.py::test_numbers_written_to_the_file_are_read_as_the_same_numbers",
        f"{_API}recipients/test_msisdn.py::test_normalised_number_with_a_plus_is_stable_in_any_region",
    ),
}

_LISTS: Mapping[str, Tests] = {
    "campaigns, single sends and the idempotent client leave out recipients on the stored suppression list": (
        f"{_AIRFLOW}operators/test_suppressions.py::TestCampaigns::test_listed_recipients_are_left_out_and_counted",
        f"{_AIRFLOW}operators/test_suppressions.py::TestSingleSends::test_listed_recipients_are_left_out_and_counted",
        f"{_AIRFLOW}operators/test_suppressions.py::TestSingleSends::test_idempotent_client_leaves_out_listed_recipients",
        f"{_AIRFLOW}cli/test_messages.py::TestSuppressionList::test_listed_recipients_are_left_out_and_counted",
    ),
    "a passcode is not requested for an invalid number only, and airtime is bought whoever is listed": (
        f"{_AIRFLOW}operators/test_suppressions.py::TestSingleSends::test_passcode_is_refused_for_an_invalid_number_only",
        f"{_AIRFLOW}operators/test_suppressions.py::TestSingleSends::test_airtime_is_bought_whoever_is_listed",
    ),
    "an entry acts in campaigns that are running, within a minute": (
        f"{_AIRFLOW}campaigns/test_opt_outs.py::test_recipient_who_opts_out_meanwhile_gets_no_message",
        f"{_CAMPAIGN}test_suppressions.py::test_recipient_that_was_taken_ahead_is_left_out_after_the_interval",
        f"{_CAMPAIGN}test_suppressions.py::test_parts_of_a_rejected_batch_are_checked_again",
    ),
    "if the list cannot be read, nothing is sent, and the task's retries try again": (
        f"{_AIRFLOW}operators/test_suppressions.py::TestUnreadable::test_unreadable_list_sends_nothing",
        f"{_AIRFLOW}operators/test_suppressions.py::TestUnreadable::test_missing_secret_of_the_list_sends_nothing",
        f"{_AIRFLOW}campaigns/test_opt_outs.py::test_list_that_cannot_be_read_any_more_ends_the_try_and_the_retry_sends_the_rest",
    ),
    'with `on_unknown="resend"` the provider resends nothing to a recipient on the list': (
        f"{_AIRFLOW}operators/test_suppressions.py::TestSingleSends::test_unknown_request_is_not_resent_to_a_listed_recipient",
        f"{_AIRFLOW}campaigns/test_recipients.py::TestSuppression::test_unknown_recipient_suppressed_since_is_not_resent_to",
    ),
    "a worker without the shared database warns, and with `require_shared_database` sends nothing": (
        f"{_AIRFLOW}operators/test_suppressions.py::TestWorkersWithoutASharedDatabase::test_log_warns_of_lists_on_other_machines",
        f"{_AIRFLOW}operators/test_suppressions.py::TestWorkersWithoutASharedDatabase::test_option_refuses_to_send",
    ),
    "a campaign without a key, and with `use_suppression_list=False`, sends on a worker with another database": (
        f"{_AIRFLOW}campaigns/test_keys.py::TestDatabases::test_campaign_without_key_and_suppression_list_sends_with_another_database",
    ),
    "an entry from a report holds for the connection that proved the report": (
        f"{_DELIVERY}tracking/test_permanent_failures.py::TestListedRecipient::test_list_of_another_connection_is_not_changed",
        f"{_AIRFLOW}operators/test_suppressions.py::TestSingleSends::test_entry_of_another_channel_or_connection_does_not_count",
    ),
    "an address that bounces after delivery is added, and a number is not if the same message was delivered before": (
        f"{_DELIVERY}tracking/test_permanent_failures.py::TestListedRecipient::test_address_that_bounced_after_delivery_is_listed",
        f"{_DELIVERY}tracking/test_permanent_failures.py::TestListedRecipient::test_recipient_that_the_message_was_delivered_to_is_not_listed",
    ),
    "if you remove a recipient from the list, earlier reports do not add it again": (
        f"{_DELIVERY}tracking/test_permanent_failures.py::TestListedRecipient::test_duplicate_report_after_a_removal_lists_no_recipient",
        f"{_DELIVERY}tracking/test_report_entries.py::TestBrakeOfCampaign::test_failure_behind_a_brake_is_removed_only_with_its_entry",
    ),
    "the single sends of a connection have the same brake": (
        f"{_DELIVERY}tracking/test_report_entries.py::TestBrakeOfSingleSends::test_single_sends_with_too_many_failures_list_no_recipient",
        f"{_DELIVERY}tracking/test_brake_kept.py::TestBrakeOfSingleSends::test_single_send_brake_is_pruned_although_later_failures_stay",
    ),
    "an import is refused as a whole if one of its rows cannot be read": (
        f"{_AIRFLOW}cli/test_suppressions.py::test_rows_that_cannot_be_read_keep_a_file_out_unless_they_are_skipped",
    ),
    "the list and the counted messages hold no number and no address": (
        f"{_DATABASE}recipients/test_suppressions.py::TestHashes::test_database_holds_no_recipient",
        f"{_DATABASE}recipients/test_frequency.py::test_database_holds_no_recipient",
        f"{_AIRFLOW}cli/test_suppressions.py::test_export_holds_no_recipient_and_is_imported_again",
    ),
    "a changed secret of the list still finds entries of its earlier ones, and a missing secret is an error": (
        f"{_DATABASE}recipients/test_suppressions.py::TestHashes::test_new_secret_listed_before_the_old_one_finds_entries_of_both",
        f"{_DATABASE}recipients/test_suppressions.py::TestHashes::test_entries_from_before_the_first_secret_are_found",
        f"{_DATABASE}recipients/test_suppressions.py::TestHashes::test_missing_secret_raises_instead_of_finding_nothing",
    ),
    "no recipient gets more messages of a category than the cap allows, also from campaigns at the same time": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_second_campaign_leaves_out_recipients_at_the_cap",
        f"{_DATABASE}recipients/test_frequency.py::test_sends_at_the_same_time_never_exceed_the_cap",
        f"{_CAMPAIGN}test_capped_at_once.py::test_each_recipient_gets_exactly_one_message",
    ),
    "SMS and WhatsApp messages to a number count together": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_sms_and_whatsapp_count_together_for_the_cap",
    ),
    "the channels of `deliver_with_fallback`, and campaigns of one `frequency_contact`, count as one message": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_campaigns_of_one_frequency_contact_count_as_one_message",
    ),
    "a message counts once over all retries and clears; with `resend_on_clear` each clear counts as another": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_each_resend_on_clear_counts_as_another_message",
        f"{_DATABASE}recipients/test_frequency.py::test_retry_of_the_same_send_counts_once",
        f"{_AIRFLOW}journal/test_made_again.py::test_retry_of_one_run_is_no_other_message_for_the_frequency_cap",
    ),
    "a dry run does not apply frequency caps": (
        f"{_AIRFLOW}campaigns/test_keys_and_caps.py::test_dry_run_makes_no_request_and_does_not_apply_the_cap",
    ),
    "what was not sent is given back to the cap": (
        f"{_DATABASE}recipients/test_frequency.py::test_released_message_is_not_counted",
        f"{_AIRFLOW}campaigns/test_opt_outs.py::test_message_of_a_recipient_who_opts_out_does_not_count_for_the_frequency_cap",
    ),
}

_PASSCODES: Mapping[str, Tests] = {
    "a passcode request returns its id and end, never the code or the number": (
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_result_is_the_record_and_its_end_without_code_and_number",
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_rendered_tab_shows_neither_code_nor_number",
        f"{_AIRFLOW}operators/test_otp.py::TestVerify::test_rendered_tab_hides_the_code_whole",
    ),
    "one task instance requests one passcode": (
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_unknown_request_is_resolved_by_the_otp_records_and_not_resent",
        f"{_AIRFLOW}operators/test_otp.py::TestRequest::test_request_not_sent_is_sent_by_the_next_try",
        f"{_AIRFLOW}journal/test_stopping.py::test_passcode_of_a_stopped_try_is_found_by_the_next",
    ),
    "a wrong code fails at once and uses up one attempt; an unknown check is not made again": (
        f"{_AIRFLOW}operators/test_otp.py::TestVerify::test_wrong_code_fails_at_once_and_uses_up_one_attempt",
        f"{_AIRFLOW}operators/test_otp.py::TestVerify::test_code_with_an_unknown_check_is_checked_once_and_fails",
        f"{_AIRFLOW}cli/test_messages.py::TestOtp::test_check_of_unknown_outcome_is_made_once_and_has_its_status",
        "tests/contract/test_faults.py::test_unknown_outcome_is_retried_only_if_that_is_harmless",
    ),
    "the wait for a passcode succeeds if it is verified, and fails at once if it is expired, revoked or missing": (
        f"{_AIRFLOW}operators/test_otp_sensor.py::TestOutcomes::test_verified_succeeds_with_the_record",
        f"{_AIRFLOW}operators/test_otp_sensor.py::TestOutcomes::test_passcode_not_verified_fails_without_a_retry_and_names_the_cause",
        f"{_AIRFLOW}operators/test_otp_sensor.py::TestOutcomes::test_missing_passcode_ends_the_wait",
    ),
    "a read timeout or a 500 does not end the wait, and a wrong key ends the try so that a retry waits again": (
        f"{_AIRFLOW}operators/test_otp_sensor.py::TestOutcomes::test_temporary_failure_does_not_end_the_wait",
        f"{_AIRFLOW}operators/test_otp_sensor.py::TestOutcomes::test_wrong_key_ends_it_so_that_a_retry_waits_again",
        f"{_AIRFLOW}operators/test_gateways.py::test_page_of_a_gateway_does_not_end_a_wait",
        f"{_AIRFLOW}operators/test_gateways.py::test_page_of_a_gateway_for_minutes_ends_the_try_so_that_a_retry_waits_again",
    ),
    "a status SENT verifies a right code, unless `require_verified_status` is set": (
        f"{_AIRFLOW}operators/test_otp.py::TestVerify::test_status_sent_is_verified_by_default",
        f"{_AIRFLOW}operators/test_otp.py::TestVerify::test_status_sent_is_not_verified_with_require_verified_status",
    ),
    "if earlier records cannot be listed, no passcode is requested": (
        f"{_AIRFLOW}journal/test_unknown.py::TestPasscodes::test_request_is_not_sent_if_earlier_records_cannot_be_read",
    ),
}

_PRIVACY: Mapping[str, Tests] = {
    "no log, error, XCom or row of Airflow's database holds a number, address, text, passcode or secret of a send": (
        f"{_AIRFLOW}journal/test_store.py::TestPrivacy::test_no_state_left_by_these_tests_holds_anything_private",
        f"{_AIRFLOW}test_privacy.py::test_no_log_holds_anything_private",
        f"{_AIRFLOW}test_privacy.py::test_no_error_holds_anything_private",
        f"{_AIRFLOW}test_privacy.py::test_airflow_s_database_holds_nothing_private",
        f"{_AIRFLOW}test_privacy.py::test_scan_finds_planted_secrets",
    ),
    "only lookups and row reads return private values": (
        f"{_AIRFLOW}test_privacy.py::test_only_lookups_and_row_reads_return_private_values",
    ),
    "rendered fields are summaries, also where a value comes from a template or from an upstream task": (
        f"{_AIRFLOW}operators/test_sms.py::TestRendering::test_rendered_tab_shows_summaries_of_what_is_private",
        f"{_AIRFLOW}operators/test_email.py::TestRendering::test_rendered_tab_shows_summaries_of_what_is_private",
        f"{_AIRFLOW}operators/test_contacts.py::TestCreate::test_rendered_tab_shows_column_names_only",
        f"{_AIRFLOW}test_native_rendering.py::test_numbers_are_masked_whatever_their_type",
    ),
    "a deferred task stores nothing private": (
        f"{_AIRFLOW}test_deferral.py::TestDeferredTry::test_deferred_task_stores_plain_json_without_anything_private",
        f"{_AIRFLOW}campaigns/test_tries.py::TestLongRetryAfter::test_deferred_campaign_stores_nothing_private",
    ),
    "values that come back from the service are masked before they are logged or stored": (
        f"{_API}test_redact.py::test_values_of_the_request_are_hidden_even_in_part",
        f"{_API}test_redact.py::test_private_value_is_hidden_however_it_is_written",
        f"{_API}test_redact.py::test_no_private_value_survives",
        f"{_API}test_redact.py::test_no_run_of_seven_digits_survives",
    ),
    "a callback URL is in no log and no result": (
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_callback_url_is_in_no_log_and_no_result",
        f"{_AIRFLOW}delivery/test_callbacks.py::TestCallbackUrlOfCampaign::test_callback_url_is_in_no_log_no_error_and_no_result",
        f"{_DELIVERY}receiver/test_access_log.py::test_token_is_hidden_and_the_rest_of_the_url_is_shown",
    ),
    "temporary files have no name in any folder": (
        f"{_CAMPAIGN}test_recipients.py::test_table_leaves_no_visible_file_even_while_open",
    ),
    "files that the provider creates can be read only by the user that runs the task or command": (
        "tests/unit/sources/test_results_file.py::TestModes::test_results_file_is_readable_by_owner_only",
        f"{_DATABASE}test_database.py::test_new_files_are_private_to_the_owner",
        f"{_DATABASE}test_open_lock.py::test_write_ahead_log_and_shared_memory_are_private",
        "tests/unit/contacts/key_map/test_map_files.py::TestExportedFile::test_exported_file_is_readable_by_its_owner_only",
    ),
    "the key map stores no key, number, address or text": (
        f"{_AIRFLOW}contacts/test_rejected.py::test_no_column_of_the_database_holds_a_key_or_a_cell",
        "tests/unit/contacts/key_map/test_key_map.py::test_hashes_of_a_contact_depend_on_the_secret_of_its_map",
        "tests/unit/contacts/key_map/test_map_files.py::TestExportedFile::test_exported_file_has_no_key_and_no_formula",
        f"{_AIRFLOW}contacts/test_rejected.py::test_key_and_cells_that_the_service_quotes_are_not_stored",
    ),
    "a client and a connection do not show their secrets": (
        f"{_API}test_client.py::test_client_does_not_show_its_key",
        "tests/unit/hooks/test_connection.py::TestSecrets::test_repr_shows_neither_key_nor_proxy_password",
        f"{_API}test_settings.py::test_password_in_the_proxy_is_refused_and_not_shown",
    ),
    "an erasure starts no DAG": (
        f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_erasure_of_the_last_open_recipient_starts_no_dag",
        f"{_DELIVERY}tracking/test_erasure.py::TestRecipientInFlight::test_erasure_of_a_recipient_in_flight_publishes_no_event",
    ),
    "an erased recipient in flight is waited for no longer": (
        f"{_DELIVERY}tracking/test_erasure.py::TestRecipientInFlight::test_recipient_erased_in_flight_is_no_longer_waited_for",
        f"{_AIRFLOW}delivery/test_sensor.py::TestAwaitedRecipients::test_recipient_erased_in_flight_is_no_longer_waited_for",
    ),
    "an erasure deletes a stored report that cannot be searched whole, and goes on": (
        f"{_DELIVERY}tracking/test_erasure.py::TestUnusualBodies::test_body_that_breaks_the_search_is_deleted_and_the_erasure_goes_on",
    ),
    "an erasure keeps an opt-out and a complaint, and removes counted messages and bounces": (
        f"{_DATABASE}recipients/test_suppressions.py::TestChanging::test_erasure_keeps_opt_out_and_complaint",
        f"{_DATABASE}recipients/test_frequency.py::test_erasure_deletes_the_messages_of_one_recipient",
        f"{_AIRFLOW}cli/test_suppressions.py::test_erasure_keeps_an_opt_out_and_says_why",
    ),
    "an erasure removes the recipient's entries of contact maps": (
        "tests/unit/contacts/key_map/test_erasure.py::test_entry_whose_key_is_the_recipient_is_removed",
        "tests/unit/contacts/key_map/test_erasure.py::test_entry_whose_cell_holds_the_recipient_is_removed_from_all_maps",
        "tests/unit/contacts/key_map/test_erasure.py::test_row_of_a_sync_is_found_by_its_cell_however_its_column_is_typed",
        f"{_AIRFLOW}contacts/test_row_by_key.py::test_row_of_an_upsert_is_erased_by_its_number",
    ),
    "reports and lookups are deleted after 90 days by the API server, once a day by all servers together": (
        f"{_AIRFLOW}delivery/test_served_jobs.py::test_application_of_the_plugin_prunes_sends_and_publishes_while_it_is_served",
        f"{_DELIVERY}test_pruner.py::test_rows_older_than_ninety_days_are_deleted_and_others_stay",
        f"{_DELIVERY}test_pruner.py::test_database_is_pruned_once_a_day_by_all_servers_together",
        f"{_DELIVERY}test_pruner.py::test_retention_that_is_off_or_unreadable_deletes_nothing",
    ),
    "rows stay at least for `callback_days`, and what an unfinished campaign needs stays until it is finished": (
        f"{_DELIVERY}test_pruner.py::test_reports_stay_as_long_as_callback_urls_take_reports",
        f"{_DELIVERY}tracking/test_retention.py::TestPruning::test_rows_of_an_unfinished_campaign_stay_until_it_is_finished",
    ),
    "alerts that no notification has reported are deleted after the retention, and newer ones stay": (
        f"{_DELIVERY}tracking/test_retention.py::TestPruning::test_unreported_alerts_stay_unless_they_are_old",
    ),
}

_RECEIVER: Mapping[str, Tests] = {
    "without a signature or with a forged token nothing is stored, and nothing of the body is read": (
        f"{_DELIVERY}receiver/test_crowded.py::TestUnverifiedRequest::test_401_without_a_well_formed_signature_before_the_body_is_sent",
        f"{_DELIVERY}receiver/test_crowded.py::TestUnverifiedRequest::test_404_with_a_forged_token_before_the_body_is_sent",
    ),
    "a callback URL expires, and has a quota": (
        f"{_DELIVERY}receiver/test_bounds.py::TestExpiredCallbackUrl::test_404_if_the_callback_url_is_older_than_its_lifetime",
        f"{_DELIVERY}receiver/test_bounds.py::TestReportQuota::test_report_limit_holds_across_report_stores",
    ),
    "the webhook is closed while one of its two settings is missing": (
        f"{_DELIVERY}receiver/test_app.py::TestWebhookEndpoint::test_404_while_a_webhook_setting_is_missing_and_200_once_both_are_set",
    ),
    "the receiver answers 503 while the database fails, and stores again afterwards": (
        f"{_DELIVERY}receiver/test_app.py::TestRefusedRequest::test_503_while_the_database_fails_and_200_afterwards",
        f"{_DELIVERY}receiver/test_bounds.py::TestMovedDatabase::test_503_while_the_database_file_is_missing_and_200_with_its_replacement",
    ),
    "the receiver accepts a new secret within a minute, and a removed one no longer": (
        f"{_DELIVERY}receiver/test_secrets_cache.py::TestRefreshAfterMismatch::test_new_secret_is_found_after_the_first_mismatch",
        f"{_DELIVERY}receiver/test_secrets_cache.py::TestReadingConnections::test_deleted_connection_is_gone_after_a_minute",
        f"{_DELIVERY}receiver/test_secrets_cache.py::TestReadingConnections::test_replaced_secret_is_returned_for_at_most_a_minute_despite_lookups",
        f"{_DELIVERY}receiver/test_app.py::TestReplacedSecret::test_replaced_secret_is_refused_after_a_report_under_the_new_one",
        f"{_DELIVERY}receiver/test_app.py::TestReplacedSecret::test_replaced_secret_is_refused_once_the_connection_is_read_again",
        f"{_DELIVERY}callbacks/test_tokens.py::TestSecretRotation::test_secret_that_is_no_longer_listed_verifies_nothing",
    ),
    "slow senders and crowds on one connection keep no other report out": (
        f"{_DELIVERY}receiver/test_crowded.py::TestSlowSenders::test_slow_senders_are_displaced_by_complete_reports",
        f"{_DELIVERY}receiver/test_crowded.py::TestSlowSenders::test_slow_senders_on_one_connection_do_not_block_others",
        f"{_DELIVERY}receiver/test_connection_limits.py::test_half_open_connections_do_not_block_other_clients",
    ),
    "each response under `/cpaas` has `no-store` and `nosniff`, errors included": (
        f"{_DELIVERY}receiver/test_response_headers.py::test_every_status_of_an_endpoint_has_the_headers",
        "tests/unit/pages/test_responses.py::test_every_route_has_the_headers_with_every_status",
        f"{_AIRFLOW}pages/test_responses.py::test_all_routes_have_the_headers_for_any_caller",
    ),
    "a replay of a pruned report, and a duplicate, start nothing": (
        f"{_DELIVERY}receiver/test_bounds.py::TestExpiredCallbackUrl::test_replay_of_a_pruned_report_is_refused_and_not_stored",
        f"{_DELIVERY}tracking/test_report_store.py::TestStoring::test_duplicate_report_raises_only_its_count",
    ),
    "a callback URL speaks for no more recipients than its request has": (
        f"{_DELIVERY}tracking/test_membership.py::TestCallbackUrl::test_callback_url_accepts_no_more_recipients_than_its_request_has",
        f"{_DELIVERY}tracking/test_membership.py::TestCallbackUrl::test_reports_beyond_the_recipients_of_a_request_publish_no_event",
    ),
    "one report that the database rejects costs the others of its transaction nothing": (
        f"{_DELIVERY}receiver/test_rejected_data.py::test_rejected_report_does_not_affect_others_of_its_group_commit",
    ),
    "a new secret in front and the old one behind it verify, in any order of workers and receiver": (
        f"{_DELIVERY}receiver/test_app.py::TestCallbackEndpoint::test_each_listed_secret_verifies_a_report",
        f"{_DELIVERY}callbacks/test_tokens.py::TestSecretRotation::test_each_listed_secret_verifies",
    ),
    "the receiver does not get the API key or the client certificate": (
        f"{_AIRFLOW}delivery/test_callbacks.py::TestSingleSend::test_receiver_does_not_get_the_api_key",
        f"{_DELIVERY}callbacks/test_receiver_check.py::test_handshake_sends_a_token_and_not_the_secret",
        f"{_DELIVERY}callbacks/test_receiver_check.py::test_receiver_does_not_get_the_client_certificate_of_the_service",
    ),
}

_PAGES: Mapping[str, Tests] = {
    "pages need a login, and show campaigns of a DAG only to users who may read it": (
        f"{_AIRFLOW}pages/test_permissions.py::TestPermissions::test_pages_and_search_need_a_login",
        f"{_AIRFLOW}pages/test_permissions.py::TestPermissions::test_campaigns_of_other_dags_are_not_shown",
        f"{_AIRFLOW}pages/test_permissions.py::TestPermissions::test_campaigns_of_a_deleted_dag_are_not_shown",
        "tests/unit/pages/test_search.py::test_search_finds_nothing_of_other_dags",
    ),
    "pages show no whole number, address or text": (
        "tests/unit/pages/test_campaigns.py::TestCampaign::test_campaign_page_shows_no_recipient",
        "tests/unit/pages/test_search.py::test_search_by_recipient_shows_the_number_masked",
        "tests/unit/pages/test_search.py::test_search_by_email_address_shows_it_masked",
        "tests/unit/pages/test_deliveries.py::test_domains_show_no_address_and_no_number",
    ),
    "no page says the opposite of what the service did": (
        "tests/unit/pages/model/test_model.py::test_scene",
        "tests/unit/pages/model/test_model.py::test_no_page_says_the_opposite_of_the_truth",
    ),
    "each recipient is in one figure, so the parts never add up to more than the recipients": (
        "tests/unit/pages/test_campaigns.py::TestList::test_recipient_of_unknown_outcome_is_in_one_figure",
        "tests/unit/pages/model/test_model.py::test_no_page_says_the_opposite_of_the_truth",
    ),
    "until the next try has read the journal, all recipients that a killed try may have sent to are unknown": (
        "tests/unit/pages/test_truth.py::TestTasks::test_killed_try_shows_what_may_be_sent_as_unknown",
    ),
    "a page stops reading its figures again 72 hours after the end of the task": (
        "tests/unit/pages/test_truth.py::TestPolling::test_page_stops_reading_again_when_reports_are_overdue",
        "tests/unit/pages/test_truth.py::TestPolling::test_page_of_a_killed_task_is_read_again_while_airflow_tries_again",
    ),
    "every change of a campaign's requests and reports moves its version, so an outdated count is recognised": (
        "tests/unit/pages/test_truth.py::TestVersions::test_each_change_of_a_counted_table_moves_the_version_of_its_campaign",
        "tests/unit/pages/test_truth.py::TestVersions::test_counting_reads_no_table_whose_changes_move_no_version",
    ),
    "if the database cannot be used for its progress, the task continues": (
        f"{_AIRFLOW}pages/test_recorded.py::test_campaign_is_sent_where_its_progress_cannot_be_recorded",
    ),
    "nothing of a page comes from another host": (
        "tests/unit/pages/test_campaigns.py::TestHeaders::test_content_security_policy_forbids_other_origins",
        "tests/unit/pages/test_responses.py::test_source_of_a_page_names_no_other_host",
    ),
    "the page of a failed campaign shows its error, and when Airflow tries again": (
        "tests/unit/pages/test_truth.py::TestTasks::test_failed_task_shows_its_error",
        f"{_AIRFLOW}pages/test_task_states.py::test_state_of_a_task_that_is_tried_again_has_the_time_of_the_next_try",
    ),
    "a national number is searched by the `default_region` of the connections": (
        "tests/unit/pages/test_truth.py::test_search_finds_a_national_number_by_the_region_of_the_connection",
    ),
    "the stop of a connection is on its campaigns, and shown to no user who may not see them": (
        "tests/unit/pages/test_campaigns.py::TestStops::test_stop_of_its_connection_is_on_the_campaign_and_on_the_list",
        "tests/unit/pages/test_campaigns.py::TestStops::test_stop_of_a_connection_of_other_dags_is_not_shown",
    ),
}

_ALERTS: Mapping[str, Tests] = {
    "alerts to the same recipients are counted, and one message reports them": (
        f"{_DATABASE}test_alerts.py::TestLeading::test_first_caller_leads_and_those_after_it_do_not",
        f"{_DATABASE}test_alerts.py::TestLeading::test_threads_with_databases_of_their_own_elect_one_leader_and_lose_no_alert",
    ),
    "alerts of a process that was killed while it waited are reported with the next": (
        f"{_DATABASE}test_alerts.py::TestLeading::test_alerts_of_a_killed_leader_are_reported_with_the_next",
    ),
    "a notification whose outcome is unknown is not sent again": (
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_request_of_unknown_outcome_is_not_sent_again",
        f"{_DATABASE}test_alerts.py::TestOutcomes::test_request_without_a_recorded_outcome_is_not_sent_again",
    ),
    "alerts that were not sent are in the next notification": (
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_alert_that_was_not_sent_is_in_the_next_notification",
        f"{_DATABASE}test_alerts.py::TestOutcomes::test_alerts_that_were_not_sent_are_reported_with_the_next",
    ),
    "a template that cannot be rendered is replaced by the default text, and the message is still sent": (
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_template_of_the_text_that_fails_is_replaced_by_the_default",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_unreadable_text_is_replaced_by_the_default",
    ),
    "without the provider's database no notification is sent": (
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_missing_database_sends_nothing",
    ),
    "invalid recipients are left out, and the others get the message": (
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_invalid_recipients_are_left_out_and_counted",
    ),
    "a text is cut, and the number of alerts and the link remain whole": (
        "tests/unit/notifications/test_message.py::test_long_text_is_cut_and_number_and_link_are_whole",
        "tests/unit/notifications/test_message.py::test_number_of_others_is_whole_in_an_email_with_long_texts",
    ),
    "waiting alerts are encrypted": (
        "tests/unit/notifications/test_message.py::test_stored_alert_is_encrypted_and_opened_by_any_listed_secret",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestFaults::test_alert_that_waits_shows_nothing_private_in_any_table",
    ),
    "failures and successes, and notifiers of another group, never share a message": (
        f"{_DATABASE}test_alerts.py::TestLeading::test_groups_do_not_know_each_other",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestTasks::test_kind_and_group_make_groups_of_their_own",
    ),
    "an alert that is over a day old before it could be sent is not sent, and newer ones are": (
        f"{_AIRFLOW}notifications/test_background.py::test_alert_of_now_is_sent_although_others_waited_for_a_day",
    ),
    "a callback that waits ends in time, whatever clocks, database and rate limit state": (
        f"{_AIRFLOW}notifications/test_callbacks.py::TestBounds::test_pause_of_a_shared_rate_limit_is_not_waited_for",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestBounds::test_clock_that_was_ahead_does_not_keep_a_caller_waiting",
        f"{_AIRFLOW}notifications/test_callbacks.py::TestBounds::test_response_that_arrives_byte_by_byte_is_of_unknown_outcome",
    ),
}

_COMMANDS: Mapping[str, Tests] = {
    "a command whose outcome is unknown ends with status 3, and an accepted message with 0": (
        f"{_AIRFLOW}cli/test_messages.py::TestSendSms::test_lost_response_ends_with_its_own_status_and_advice",
        f"{_AIRFLOW}cli/test_messages.py::TestIdempotencyKey::test_outcome_that_stays_unknown_after_its_resends_has_its_status",
        f"{_AIRFLOW}cli/test_messages.py::TestOtp::test_outcome_is_unknown_if_the_records_cannot_be_read_either",
        f"{_AIRFLOW}cli/test_messages.py::TestOutput::test_message_that_was_accepted_ends_with_status_0",
        f"{_AIRFLOW}cli/test_messages.py::TestOutput::test_failed_output_after_an_accepted_message_is_reported_on_standard_error",
    ),
    "with a key, a second run of `send-sms` sends nothing and shows the first": (
        f"{_AIRFLOW}cli/test_messages.py::TestIdempotencyKey::test_second_run_sends_nothing_and_shows_the_first",
        f"{_AIRFLOW}cli/test_messages.py::TestIdempotencyKey::test_unknown_outcome_is_sent_again_only_on_demand",
    ),
    "numbers and addresses are masked in all output, and a passcode is never an argument": (
        f"{_AIRFLOW}cli/test_messages.py::TestSendSms::test_output_in_each_format_has_the_reference_and_no_recipient",
        f"{_AIRFLOW}cli/test_messages.py::TestPrivacy::test_command_that_makes_a_request_shows_no_recipient",
        f"{_AIRFLOW}cli/test_messages.py::TestPrivacy::test_command_on_the_database_shows_no_recipient",
        f"{_AIRFLOW}contacts/test_rejected.py::test_key_that_is_an_argument_is_in_no_output",
        f"{_AIRFLOW}cli/test_messages.py::TestOtp::test_code_is_no_argument",
    ),
    "commands that ask for confirmation change nothing without an answer": (
        f"{_AIRFLOW}cli/test_journal.py::TestConfirmation::test_answer_of_no_changes_nothing",
        f"{_AIRFLOW}cli/test_journal.py::TestConfirmation::test_missing_answer_changes_nothing_and_names_the_option",
    ),
    "tables that are newer than a process knows are refused, and older ones are migrated once": (
        f"{_DATABASE}test_migrations.py::test_newer_or_unreleased_version_is_refused",
        f"{_DATABASE}test_migrations.py::test_migrations_run_in_order_and_once",
        f"{_DATABASE}test_migrations.py::test_threads_that_migrate_at_once_migrate_once",
    ),
    "a SQLite file that is moved away is neither written nor read, and the one put in its place is opened": (
        f"{_DATABASE}test_moved.py::TestMoved::test_moved_file_is_neither_written_nor_read",
        f"{_DATABASE}test_moved.py::TestMoved::test_file_that_replaces_it_is_opened_anew",
    ),
    "the lock file of a killed process blocks no other": (
        f"{_DATABASE}test_open_lock.py::test_lock_file_of_a_killed_process_blocks_no_other",
    ),
    "importing all operators and sensors adds few modules and no third-party library": (
        "tests/unit/test_import_cost.py::test_all_operators_and_sensors_add_few_modules_and_no_library",
    ),
    "the log begins with the guards and ends with all counts, in a failed campaign too": (
        f"{_AIRFLOW}test_task_log.py::TestCampaign::test_log_begins_with_operator_settings_and_limits",
        f"{_AIRFLOW}test_task_log.py::TestCampaign::test_log_ends_with_all_counts",
        f"{_AIRFLOW}test_task_log.py::TestCampaign::test_log_of_a_failed_campaign_has_all_counts",
    ),
    "a try that sends nothing says why: the earlier try, the key, or the clear": (
        f"{_AIRFLOW}test_task_log.py::TestEarlierTry::test_log_of_a_cleared_campaign_names_resend_on_clear",
        f"{_AIRFLOW}test_task_log.py::TestEarlierTry::test_log_of_a_cleared_keyed_campaign_names_the_key",
    ),
    "`airflow cpaas doctor` creates, changes and costs nothing": (
        f"{_AIRFLOW}cli/test_doctor.py::TestConnection::test_valid_connection_passes_without_a_charge",
        f"{_AIRFLOW}cli/test_doctor.py::TestDatabase::test_missing_file_is_not_created",
        f"{_AIRFLOW}cli/test_doctor.py::TestDatabase::test_older_tables_are_not_migrated",
    ),
    "`airflow cpaas campaigns` and the pages have the same figures": (
        "tests/unit/pages/model/test_model.py::test_no_page_says_the_opposite_of_the_truth",
    ),
    "a command refuses another database than tasks use, before a request": (
        f"{_AIRFLOW}cli/test_messages.py::TestIdempotencyKey::test_another_database_than_that_of_tasks_is_refused",
        f"{_AIRFLOW}cli/test_suppressions.py::test_entries_are_not_added_to_another_database_than_that_of_tasks",
    ),
    "after Ctrl-C a send is no success, and its key can be used again": (
        f"{_AIRFLOW}cli/test_messages.py::test_ctrl_c_while_the_service_asks_to_wait_sends_nothing_and_the_key_can_be_used_again",
        f"{_AIRFLOW}cli/test_messages.py::test_run_that_is_stopped_before_it_sends_to_a_recipient_added_later_is_no_success",
    ),
    "of two commands with one key at a time the second is refused": (
        f"{_AIRFLOW}cli/test_messages.py::test_key_is_leased_while_a_run_sends",
    ),
}

_SANDBOX: Mapping[str, Tests] = {
    "a fault before accepts nothing, and a fault after stores, charges and counts the request": (
        "tests/cpaas_sandbox/faults/test_kinds.py::test_before_acceptance_nothing_is_accepted",
        "tests/cpaas_sandbox/faults/test_kinds.py::test_failure_after_acceptance_accepts_the_request",
        "tests/cpaas_sandbox/faults/test_kinds.py::test_request_is_charged_unless_its_fault_comes_before_acceptance",
        "tests/cpaas_sandbox/faults/test_kinds.py::test_operation_is_charged_if_its_response_is_lost_and_not_if_it_fails",
        "tests/cpaas_sandbox/faults/test_kinds.py::test_request_to_a_recipient_that_is_rejected_is_not_charged",
    ),
    "by default the sandbox sends delivery reports only to this machine": (
        "tests/cpaas_sandbox/reports/test_dispatcher.py::test_url_of_another_host_is_never_called",
        "tests/cpaas_sandbox/reports/test_dispatcher.py::test_only_loopback_urls_count_as_this_machine",
    ),
    "the sandbox retries a report an hour later, for a day": (
        "tests/cpaas_sandbox/reports/test_dispatcher.py::test_unacknowledged_report_is_repeated_an_hour_later",
        "tests/cpaas_sandbox/reports/test_dispatcher.py::test_report_without_acknowledgement_is_given_up_after_a_day",
    ),
    "the same recipient always has the same outcome": (
        "tests/cpaas_sandbox/reports/test_schedule.py::test_outcome_of_a_recipient_depends_on_the_seed_only",
        "tests/cpaas_sandbox/reports/test_schedule.py::test_seeded_outcome_precedes_the_random_one",
    ),
    "a scene or a change of settings is applied as a whole or not at all": (
        "tests/cpaas_sandbox/control/test_app.py::test_scene_replaces_faults_and_sets_balance_and_settings_in_one_call",
        "tests/cpaas_sandbox/control/test_app.py::test_settings_change_together_or_not_at_all",
        "tests/cpaas_sandbox/control/test_app.py::test_scene_with_a_refused_setting_changes_nothing",
    ),
    "each test finds the sandbox as new, and its connection is set for the test only": (
        "tests/cpaas_sandbox/pytest_plugin/test_sandbox_fixture.py::TestIsolation::test_each_test_finds_the_sandbox_as_new",
        "tests/cpaas_sandbox/pytest_plugin/test_sandbox_fixture.py::TestConnection::test_connection_is_set_for_the_test_only",
    ),
    "`sms_to` fails if there is no such message or more than one": (
        "tests/cpaas_sandbox/pytest_plugin/test_sandbox_fixture.py::TestErrors::test_missing_message_lists_what_was_sent_and_requests",
        "tests/cpaas_sandbox/pytest_plugin/test_sandbox_fixture.py::TestErrors::test_message_that_was_sent_twice_fails",
    ),
    "if your project has fixtures of the short names, yours take precedence": (
        "tests/cpaas_sandbox/pytest_plugin/test_sandbox_fixture.py::TestIsolation::test_own_fixtures_of_the_same_names_take_precedence",
    ),
}

PARTS: Mapping[str, Mapping[str, Tests]] = {
    "Outcomes of one request": _OUTCOMES,
    "The journal": _JOURNAL,
    "Later tries": _LATER_TRIES,
    "Clears, new runs, backfills": _RUNS,
    "Stopping": _STOPPING,
    "Kills and outages": _KILLING,
    "Guards": _GUARDS,
    "Money": _MONEY,
    "Stops and budgets": _ACCOUNT,
    "Recipients and texts": _RECIPIENTS,
    "Suppression list and frequency caps": _LISTS,
    "Passcodes": _PASSCODES,
    "Delivery reports": _REPORTS,
    "The receiver": _RECEIVER,
    "Pages in Airflow's UI": _PAGES,
    "Contact syncs": _CONTACTS,
    "Notifications": _ALERTS,
    "Personal data": _PRIVACY,
    "Command line and database": _COMMANDS,
    "Sandbox and pytest plugin": _SANDBOX,
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
    f"{_DELIVERY}tracking/test_report_store.py::TestStoring::test_report_is_stored_and_counted",
    f"{_DELIVERY}tracking/test_report_store.py::TestStoring::test_same_report_on_two_connections_is_new_on_each",
    f"{_DELIVERY}tracking/test_report_store.py::test_concurrent_stores_count_each_recipient_once",
    f"{_DELIVERY}tracking/test_sent_requests.py::TestRecordingSends::test_later_try_continues_the_same_send",
    f"{_DELIVERY}tracking/test_counts.py::test_campaign_is_counted_by_the_statuses_of_its_recipients",
    f"{_DELIVERY}tracking/test_events.py::TestCampaignFinishedEvent::test_campaign_finishes_once_every_recipient_has_a_final_status",
    f"{_DELIVERY}tracking/test_retention.py::TestPruning::test_only_rows_older_than_the_retention_are_deleted",
    f"{_DELIVERY}tracking/test_erasure.py::TestRecipientToErase::test_erased_number_is_removed_and_the_counts_stay",
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
