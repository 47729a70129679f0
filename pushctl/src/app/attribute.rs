//! `pushctl attribute`: the attributes that an app declares for its devices.

use clap::Subcommand;
use push_index::Index;
use push_model::{
    custom::{AttributeName, ValueType},
    ids::AppId,
};
use push_operator::{
    app::attributes::{self, AttributeView},
    audit::Actor,
};

use crate::{confirm::Confirmation, output::Output};

/// Commands on the attributes of an app's own.
#[derive(Debug, Subcommand)]
pub enum AttributeCommand {
    /// Declare an attribute, which devices can have within 5 s
    Add {
        /// The app
        app_id: AppId,
        /// The name: a letter, then at most 63 of A-Z a-z 0-9 _ . -
        name: AttributeName,
        /// The type of its values: string, number, version or time
        #[arg(long = "type", value_name = "TYPE", value_parser = value_type)]
        value_type: ValueType,
    },
    /// List the attributes
    List {
        /// The app
        app_id: AppId,
    },
    /// Remove an attribute, and the values that devices have of it
    Remove {
        /// The app
        app_id: AppId,
        /// The name
        name: String,
        /// The answer to the question
        #[command(flatten)]
        confirmation: Confirmation,
    },
}

fn value_type(text: &str) -> Result<ValueType, String> {
    ValueType::from_name(text)
        .ok_or_else(|| format!("must be one of {}", ValueType::ALL.map(ValueType::name).join(", ")))
}

/// Runs the command.
///
/// # Errors
/// If there is no such app or attribute, it cannot be declared, or the index did not answer.
pub async fn run(
    command: AttributeCommand,
    index: &dyn Index,
    actor: &Actor,
    out: Output,
) -> anyhow::Result<()> {
    match command {
        AttributeCommand::Add { app_id, name, value_type } => {
            let added = attributes::add(index, actor, &app_id, name, value_type).await?;
            let text = format!("{app_id} declares {} as a {}", added.name, value_type.name());
            out.result(text, &added)
        }
        AttributeCommand::List { app_id } => {
            let all = attributes::list(index, &app_id).await?;
            let line = |one: &AttributeView| format!("{}  {}", one.name, one.value_type.name());
            let text = match all.is_empty() {
                true => format!("{app_id} declares no attribute: see `pushctl attribute add`"),
                false => all.iter().map(line).collect::<Vec<_>>().join("\n"),
            };
            out.result(text, &all)
        }
        AttributeCommand::Remove { app_id, name, confirmation } => {
            let loss = async || {
                Ok(format!(
                    "removes the attribute {name} of {app_id}, with the values of its devices"
                ))
            };
            confirmation.ask(loss, out).await?;
            let removed = attributes::remove(index, actor, &app_id, &name).await?;
            out.result(format!("removed {name}"), &removed)
        }
    }
}
