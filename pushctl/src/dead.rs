//! `pushctl dead`: what could not be processed.

use anyhow::bail;
use clap::Subcommand;
use push_queue::{DeadLetter, Queue};
use serde_json::json;

use crate::output::{Output, Table};

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
    Replay(Which),
    /// Delete them
    Drop(Which),
}

/// Which dead letters.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Ids from `pushctl dead list`
    ids: Vec<String>,
    /// All of them
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

impl Which {
    fn ids(&self) -> anyhow::Result<Option<&[String]>> {
        match (self.all, self.ids.as_slice()) {
            (true, _) => Ok(None),
            (false, []) => bail!("name the dead letters by their ids, or give --all"),
            (false, ids) => Ok(Some(ids)),
        }
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
        DeadCommand::Replay(which) => {
            let moved = queue.replay_dead(which.ids()?).await?;
            out.result(format!("{moved} moved back to their lanes"), &json!({ "replayed": moved }))
        }
        DeadCommand::Drop(which) => {
            let dropped = queue.drop_dead(which.ids()?).await?;
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
