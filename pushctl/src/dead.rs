//! `pushctl dead`: lists, replays and drops dead letters, the queue messages that no worker could
//! process.

use anyhow::bail;
use clap::Subcommand;
use push_model::audit::{Action, AuditEvent};
use push_queue::{DeadLetter, Queue};
use serde_json::json;

use crate::{
    audit,
    output::{Output, Table},
};

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub enum DeadCommand {
    /// List them, oldest first, with when and why they came here
    List {
        /// The most to list
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Move them back to the lanes they came from
    Replay(Selection),
    /// Delete them
    Drop(Selection),
}

/// The dead letters that a command works on.
#[derive(Debug, clap::Args)]
pub struct Selection {
    /// Ids from `pushctl dead list`
    ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

impl Selection {
    /// The ids that were given; `None` for all.
    fn ids(&self) -> anyhow::Result<Option<&[String]>> {
        match (self.all, self.ids.as_slice()) {
            (true, _) => Ok(None),
            (false, []) => bail!("name the dead letters by their ids, or give --all"),
            (false, ids) => Ok(Some(ids)),
        }
    }
}

/// What the audit trail says of a command; none for one that changes nothing.
pub fn audit_event(command: &DeadCommand) -> Option<AuditEvent> {
    match command {
        DeadCommand::List { .. } => None,
        DeadCommand::Replay(_) => Some(audit::event(Action::DeadLettersReplayed)),
        DeadCommand::Drop(_) => Some(audit::event(Action::DeadLettersDropped)),
    }
}

/// Runs the command.
///
/// # Errors
/// If the queue did not answer.
pub async fn run(command: DeadCommand, queue: &dyn Queue, out: Output) -> anyhow::Result<()> {
    match command {
        DeadCommand::List { limit } => {
            let letters = queue.dead(limit).await?;
            let mut table = Table::new(&["ID", "SINCE", "LANE", "BYTES", "REASON"]);
            for letter in &letters {
                let lane = letter.lane.map_or("unknown", |lane| lane.name());
                table.row([
                    letter.id.clone(),
                    letter.died_at.map_or("unknown".to_owned(), |at| at.to_string()),
                    lane.to_owned(),
                    letter.payload.len().to_string(),
                    letter.reason.clone(),
                ]);
            }
            let text =
                if letters.is_empty() { "no dead letters".to_owned() } else { table.to_string() };
            out.result(text, &letters.iter().map(describe).collect::<Vec<_>>())
        }
        DeadCommand::Replay(selection) => {
            let moved = queue.replay_dead(selection.ids()?).await?;
            out.result(format!("{moved} moved back to their lanes"), &json!({ "replayed": moved }))
        }
        DeadCommand::Drop(selection) => {
            let dropped = queue.drop_dead(selection.ids()?).await?;
            out.result(format!("{dropped} deleted"), &json!({ "dropped": dropped }))
        }
    }
}

fn describe(letter: &DeadLetter) -> serde_json::Value {
    json!({
        "id": letter.id,
        "lane": letter.lane.map(push_queue::Lane::name),
        "reason": letter.reason,
        "died_at": letter.died_at,
        "payload": String::from_utf8_lossy(&letter.payload),
    })
}
