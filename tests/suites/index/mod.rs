//! The promises of every index engine, as one suite that runs against each of them: Redis, Redis
//! Cluster and SQLite. What only the Redis engine can meet is tested against that one alone.

mod apps;
mod devices;
mod engines;
mod ledger;
mod list_latency;
mod redis_only;
mod support;
mod targeting;

/// Makes a test of every sentence for every engine: `redis::apps::records::apps_are_listed_by_id`.
macro_rules! suite {
    ($($folder:ident { $($module:ident: $($sentence:ident),*;)* })*) => {
        suite!(@engine redis: $($folder { $($module: $($sentence),*;)* })*);
        suite!(@engine redis_cluster: $($folder { $($module: $($sentence),*;)* })*);
        suite!(@engine sqlite: $($folder { $($module: $($sentence),*;)* })*);
    };
    (@engine $engine:ident: $($folder:ident { $($module:ident: $($sentence:ident),*;)* })*) => {
        mod $engine {
            $(mod $folder {
                $(mod $module {
                    $(#[tokio::test]
                    async fn $sentence() {
                        let engine = crate::index::engines::$engine().await;
                        crate::index::$folder::$module::$sentence(engine.part()).await;
                    })*
                })*
            })*
        }
    };
}

suite! {
    apps {
        records:
            an_app_is_created_once_and_updated_only_if_it_exists,
            a_record_that_was_changed_since_it_was_read_is_not_replaced,
            apps_are_listed_by_id,
            a_removed_app_leaves_no_device_and_can_come_back;
        removal:
            each_app_of_a_name_has_a_generation_and_a_record_of_its_own,
            a_registration_for_a_removed_app_is_refused_and_never_seen_by_the_next_one,
            nothing_is_read_or_removed_with_the_key_of_a_removed_app,
            a_code_of_a_removed_app_never_means_a_value_of_the_next_one,
            what_a_removed_app_still_sends_is_not_taken_off_the_next_ones_pace,
            registrations_during_a_removal_leave_nothing;
        secret_uses:
            the_latest_use_of_each_secret_is_kept,
            the_uses_of_secrets_that_are_gone_are_forgotten,
            a_program_with_an_old_record_forgets_no_use_of_a_new_secret,
            the_uses_of_a_removed_app_are_gone_and_none_is_saved_later;
        usage:
            what_several_programs_count_is_added_up,
            hours_that_are_over_are_dropped,
            the_usage_of_a_removed_app_is_gone_and_none_is_counted_later;
        admin_keys:
            a_key_is_found_by_its_digest_until_it_is_removed,
            keys_are_listed_by_name_with_the_latest_use,
            there_are_no_more_keys_than_are_allowed;
        audit:
            events_are_listed_the_newest_first_as_they_were_appended,
            no_more_than_the_newest_events_are_kept;
        components:
            a_program_is_listed_with_its_last_record_until_that_ends_or_is_removed,
            no_more_than_the_most_programs_are_listed_and_one_that_ended_makes_room,
            a_record_that_is_too_large_is_not_written;
        pacing:
            every_engine_grants_what_the_definition_grants,
            workers_that_ask_at_the_same_time_are_granted_no_more_than_one_after_another,
            the_pace_of_one_app_is_not_used_up_by_another;
        transfer:
            devices_keep_their_times_of_registration,
            an_app_is_found_only_when_it_has_arrived,
            an_arrival_replaces_no_app_and_no_other_arrival,
            an_arrival_belongs_to_the_attempt_that_began_it_last,
            an_app_that_moved_away_can_come_back_to_its_devices;
    }
    devices {
        by_id:
            a_device_comes_back_as_it_was_registered,
            two_clients_that_the_map_cannot_tell_apart_are_two_devices,
            registering_again_replaces_the_device_and_keeps_its_time_of_registration,
            of_two_entries_for_one_client_in_one_call_the_later_wins,
            a_removed_device_is_gone_and_can_come_back,
            many_devices_are_registered_and_found_by_their_ids,
            long_ids_and_tokens_of_any_length_are_kept_exactly,
            apps_do_not_see_each_others_devices,
            a_full_dictionary_stores_new_values_as_absent_and_keeps_known_ones;
        dictionaries:
            values_that_no_device_has_are_freed_and_their_codes_have_other_values,
            a_device_that_changes_a_value_without_end_keeps_no_other_from_its_values,
            a_value_that_is_wanted_again_during_a_sweep_is_kept,
            sweeps_that_are_made_at_the_same_time_free_nothing_that_a_device_has;
        epochs:
            an_epoch_lasts_from_the_first_registration_to_the_removal,
            a_registration_is_renewed_only_while_it_is_stored,
            a_device_that_registered_again_is_not_removed_as_gone,
            many_devices_are_removed_in_one_call,
            a_transport_is_listed_as_long_as_a_device_belongs_to_it;
        gone:
            gone_devices_that_are_removed_are_listed_the_newest_first,
            the_list_of_gone_devices_of_an_app_is_bounded_and_takes_no_other_apps_place,
            reports_of_gone_devices_are_counted_within_a_window,
            removals_are_stopped_once_whoever_asks_and_for_their_app_alone,
            what_is_known_of_an_apps_gone_devices_goes_with_it;
        profiles:
            what_a_registration_does_not_name_stays,
            a_patch_changes_registered_devices_only,
            a_device_gets_no_101st_topic_and_loses_none_for_it,
            what_finds_no_room_is_absent_and_keeps_no_device_from_registering,
            a_later_attribute_of_a_removed_ones_name_has_none_of_its_values,
            a_user_has_at_most_a_hundred_devices,
            a_device_that_changes_its_user_is_no_device_of_the_former_one,
            changes_that_come_together_lose_nothing_of_each_other;
        registrations:
            registrations_that_come_together_are_answered_each_for_itself;
    }
    targeting {
        scanning:
            pages_cover_a_slot_range_once_and_in_order_whatever_their_size,
            a_device_in_a_reused_slot_is_not_reached_by_an_earlier_message,
            an_update_moves_a_device_from_one_audience_to_another,
            among_hundreds_of_values_each_reaches_its_own_devices_while_they_change,
            a_device_that_changes_alone_moves_among_hundreds_of_values,
            a_range_of_languages_reaches_values_that_came_later,
            thousands_of_wanted_values_among_thousands_keep_no_other_app_waiting,
            spellings_that_people_take_for_one_reach_the_same_devices,
            a_slot_range_that_reaches_past_the_devices_ends,
            an_audience_of_many_slices_is_counted_whole,
            an_app_without_devices_has_nothing_to_scan,
            devices_that_stay_are_seen_once_while_others_come_and_go;
        filters:
            samples_that_meet_share_the_devices_out,
            a_topic_reaches_its_devices_however_many_they_are,
            a_filter_with_as_many_tests_as_it_may_have_is_evaluated;
        tallies:
            an_apps_devices_are_tallied_by_transport_and_by_value;
        model:
            every_engine_answers_like_the_model;
    }
    ledger {
        entries:
            the_first_to_begin_an_entry_decides_what_it_says,
            a_plan_known_from_the_start_needs_no_step_of_its_own,
            the_first_plan_stays_in_force,
            counts_and_checkpoint_are_saved_together_and_only_from_where_the_batch_began,
            of_two_workers_at_one_partition_one_saves_and_the_other_is_told,
            a_claim_is_part_of_what_a_step_follows_on,
            leftovers_stay_until_a_step_replaces_them,
            an_entry_is_replaced_only_by_a_job_that_names_its_nonce,
            an_entry_belongs_to_its_app,
            a_step_for_a_message_without_entry_says_so_and_leaves_none;
        recalls:
            a_recall_is_told_to_every_batch_that_follows,
            what_has_an_outcome_cannot_be_recalled,
            a_message_that_expired_unsent_can_be_recalled_and_is_not_replaced_then,
            a_message_can_be_recalled_before_it_begins,
            an_early_recall_counts_in_its_own_app_only;
        model:
            every_engine_keeps_what_the_model_keeps;
        broadcasts:
            a_broadcast_is_listed_with_what_is_left_of_each_partition_until_nothing_is,
            what_is_not_listed_stays_so_whatever_a_late_worker_notes,
            a_recalled_broadcast_has_nothing_left,
            no_more_broadcasts_are_listed_than_one_request_can_read;
        eviction:
            within_its_limit_nothing_is_evicted,
            the_oldest_closed_entries_go_first_and_an_open_one_never,
            a_broadcast_that_is_closed_is_evicted_with_its_partitions,
            what_never_closes_keeps_no_other_entry_from_being_evicted,
            a_push_that_was_tried_again_takes_no_more_than_others,
            a_job_whose_closed_entry_was_evicted_does_not_begin_again,
            an_eviction_is_remembered_while_the_message_may_still_be_sent,
            no_job_begins_again_while_its_entry_is_being_evicted,
            a_recall_does_not_let_a_job_begin_again_whose_entry_was_evicted;
        sharing:
            a_quiet_app_keeps_its_history_while_a_loud_one_overflows_the_ledger,
            thousands_of_made_up_ids_of_one_page_cost_their_own_app_only,
            an_app_sees_no_entry_of_an_earlier_one_of_its_name;
        lists:
            messages_are_listed_newest_first_without_gap_or_repeat_while_others_begin,
            a_loud_app_hides_no_message_of_a_quiet_one,
            messages_are_listed_in_order_however_they_are_spread_over_the_store,
            a_message_with_devices_to_be_tried_again_is_listed_with_its_counts,
            a_message_is_listed_once_whatever_becomes_of_it,
            a_page_of_one_state_is_bounded_and_goes_on,
            an_early_recall_is_listed_when_a_worker_begins_the_message,
            evicted_messages_leave_the_list;
        content:
            a_broadcast_keeps_its_content_and_sender_whatever_becomes_of_it,
            a_broadcast_that_was_recalled_early_keeps_its_content,
            a_list_shows_who_sent_a_broadcast_and_its_title_and_no_content,
            content_counts_in_the_size_of_the_ledger_and_goes_with_its_entry;
        history:
            an_evicted_message_is_not_taken_for_one_that_waits,
            an_id_from_the_future_hides_no_message_that_waits,
            a_recall_of_an_evicted_message_is_unknown,
            history_says_how_far_back_it_reaches_and_what_it_takes;
    }
}
