//! `pushctl user`: the devices of a user.

use clap::Subcommand;
use push_boot::terminal;
use push_index::Index;
use push_model::ids::{AppId, UserId};
use push_operator::{audit::Actor, device::users};

use crate::{
    confirm::{Confirmation, count},
    output::Output,
};

/// Commands on the users of an app's devices.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Show the devices of a user
    Show {
        /// The app
        app_id: AppId,
        /// The user
        user_id: UserId,
    },
    /// Remove all devices of a user
    Remove {
        /// The app
        app_id: AppId,
        /// The user
        user_id: UserId,
        /// The answer to the question
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

/// Runs the command.
///
/// # Errors
/// If there is no such app, the user has no device, or the index did not answer.
pub(crate) async fn run(
    command: UserCommand,
    index: &dyn Index,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        UserCommand::Show { app_id, user_id } => {
            let found = users::show(index, &app_id, &user_id).await?;
            let text = serde_json::to_string_pretty(&found)?;
            out.result(terminal::json(&text), &found)
        }
        UserCommand::Remove { app_id, user_id, confirmation } => {
            let loss = async || {
                let found = users::show(index, &app_id, &user_id).await?;
                let devices = count(found.devices.len() as u64, "device");
                Ok(format!("removes the {devices} of the user {user_id}"))
            };
            confirmation.ask(loss, out).await?;
            let done = users::remove(index, actor, &app_id, &user_id).await?;
            let devices = count(done.removed.len() as u64, "device");
            out.result(format!("removed {devices}"), &done)
        }
    }
}
