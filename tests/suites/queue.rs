//! The queue: one contract that both engines keep, and what only RabbitMQ can do wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail as tests do")]

#[path = "queue/alarm.rs"]
mod alarm;
#[path = "queue/contract.rs"]
mod contract;
#[path = "queue/rabbitmq.rs"]
mod rabbitmq;
#[path = "queue/restart.rs"]
mod restart;
#[path = "queue/tools.rs"]
mod tools;
#[path = "queue/upgrade.rs"]
mod upgrade;

use std::sync::Arc;

use push_queue::{
    Queue,
    sqlite::{SqliteQueue, SqliteQueueSettings},
};
use tempfile::TempDir;

/// A queue of its own for one test, and what must live as long as it does.
struct Opened {
    queue: Arc<dyn Queue>,
    _folder: Option<TempDir>,
}

async fn on_rabbitmq() -> Opened {
    let queue = tools::connect(&push_tests::amqp_url(), &push_tests::namespace()).await.unwrap();
    Opened { queue: Arc::new(queue), _folder: None }
}

async fn on_sqlite() -> Opened {
    let folder = tempfile::tempdir().unwrap();
    let (file, settings) = (folder.path().join("queue.sqlite3"), SqliteQueueSettings::default());
    let queue = SqliteQueue::open(&file, &push_tests::namespace(), settings).await.unwrap();
    Opened { queue: Arc::new(queue), _folder: Some(folder) }
}

/// Makes a test of every clause of the contract, for one engine.
macro_rules! keeps {
    ($engine:ident: $($clause:ident)*) => {
        mod $engine {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $clause() {
                    let opened = super::$engine().await;
                    super::contract::$clause(opened.queue.clone()).await;
                    opened.queue.close().await;
                }
            )*
        }
    };
}

macro_rules! contract {
    ($($clause:ident)*) => {
        keeps!(on_rabbitmq: $($clause)*);
        keeps!(on_sqlite: $($clause)*);
    };
}

contract! {
    a_message_is_delivered_once_and_gone_after_its_ack
    messages_come_in_the_order_in_which_they_were_published
    what_is_dropped_undecided_comes_back_and_says_how_often
    what_is_requeued_comes_back_and_says_how_often
    a_delivery_is_held_while_no_other_consumer_can_have_it
    prefetch_bounds_the_undecided_deliveries
    dropping_deliveries_does_not_use_up_the_prefetch
    a_delayed_message_comes_after_its_delay_and_soon_after
    a_long_delay_does_not_hold_up_a_short_one
    dead_letters_are_listed_without_being_removed
    dead_letters_are_replayed_by_name_and_all_together
    dead_letters_are_dropped_by_name_and_all_together
    what_kills_its_consumers_is_counted_until_a_worker_puts_it_aside
    two_consumers_share_a_lane
    lanes_do_not_mix
    a_message_of_a_mebibyte_arrives_whole
    cancelling_the_wait_loses_nothing
    concurrent_publishes_all_arrive
    the_depth_is_what_waits
    a_look_shows_what_comes_next_and_changes_neither_content_nor_order
    looking_often_loses_nothing_and_puts_nothing_aside
    a_look_ends_at_its_size_and_leaves_out_what_somebody_holds
    a_dropped_consumer_gives_back_what_it_did_not_hand_out
    a_closed_queue_says_so
    the_server_answers_and_says_what_it_is
}
