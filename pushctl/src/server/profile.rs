//! `pushctl profile`: server and secret of an app, kept for later commands.

use anyhow::Context as _;
use clap::Subcommand;
use push_model::ids::AppId;
use push_operator::{
    client::Client,
    profile::{self, Profile, ProfileView},
};

use super::{ServerArgs, profile_file};
use crate::output::{Output, Table};

/// Commands on profiles.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Keep the secret of an app that exists, and its server, which is asked if it takes the secret
    Add {
        /// The app
        app_id: AppId,
        /// The server and the secret
        #[command(flatten)]
        server: ServerArgs,
    },
    /// List the profiles; no secret is shown. A command takes the profile of its app; if several are
    /// for it, the preferred one
    List,
    /// Prefer this profile where several are for its app. One profile at a time is preferred, at first
    /// the one that was added first
    Use {
        /// The profile
        #[arg(value_parser = profile::name)]
        name: String,
    },
    /// Show a profile without its secret; without a name, the preferred one
    Show {
        /// The profile
        #[arg(value_parser = profile::name)]
        name: Option<String>,
    },
    /// Forget a profile. The secret stays valid
    Remove {
        /// The profile
        #[arg(value_parser = profile::name)]
        name: String,
    },
}

/// Runs the command.
///
/// # Errors
/// If there is no such profile, the server does not take the secret, or the file cannot be read or written, or others can read it.
pub async fn run(command: ProfileCommand, out: Output) -> anyhow::Result<()> {
    let file = profile_file()?;
    match command {
        ProfileCommand::Add { app_id, server } => {
            let (server, name, secret) = server.to_save(&app_id)?;
            let secret = secret
                .context("name the file of the secret with --secret-file, or set PUSH_SECRET")?;
            let client = Client::new(server.clone(), &app_id, &secret);
            match tokio::task::spawn_blocking(move || client.try_secret()).await? {
                Err(error) if Client::may_pass(&error) => {
                    out.note(format_args!("the secret was not tried: {error:#}"));
                }
                tried => tried?,
            }
            let saved = file.change(|all| {
                all.check_free(&name, &app_id, &server)?;
                Ok(all.save(&name, Profile::new(app_id, &server, &secret)))
            })?;
            print(&saved, out)
        }
        ProfileCommand::List => {
            let all = file.read()?.list();
            let mut table = Table::new(&["PROFILE", "APP", "SERVER", "PREFERRED"]);
            for ProfileView { profile, app_id, server, in_use } in &all {
                let in_use = if *in_use { "yes" } else { "" }.to_owned();
                table.row([profile.clone(), app_id.to_string(), server.clone(), in_use]);
            }
            out.result(
                if all.is_empty() { "no profiles".to_owned() } else { table.to_string() },
                &all,
            )
        }
        ProfileCommand::Use { name } => print(&file.change(|all| all.set_current(&name))?, out),
        ProfileCommand::Show { name } => print(&file.read()?.show(name.as_deref())?, out),
        ProfileCommand::Remove { name } => {
            let removed = file.change(|all| all.remove(&name))?;
            out.result(format!("profile {name} is forgotten"), &removed)
        }
    }
}

/// Prints a profile.
pub(crate) fn print(view: &ProfileView, out: Output) -> anyhow::Result<()> {
    out.result(text(view), view)
}

/// Describes a profile.
pub(crate) fn text(view: &ProfileView) -> String {
    let ProfileView { profile, app_id, server, in_use } = view;
    let in_use = if *in_use { "yes" } else { "no" };
    format!(
        "profile    {profile}\napp        {app_id}\nserver     {server}\nsecret     kept, not shown\npreferred  {in_use}"
    )
}
