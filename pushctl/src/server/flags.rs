//! The flags that name the server of a command and log in there, and the profiles that stand in for
//! them.

use std::{env, ffi::OsString, path::Path};

use anyhow::bail;
use push_boot::{
    engines::{EngineSettings, IndexUrl},
    settings,
    settings::ConfigErrors,
};
use push_model::{ids::AppId, secret::Secret};
use push_operator::{
    client::Client,
    profile::{self, ProfileFile, Wanted, default_server},
    server::Server,
};

use crate::output::Output;

/// The default of `--data-dir`.
pub(crate) const DATA_DIR: &str = "push-data";

settings! {
    /// Flags about the server.
    pub struct PlaceArgs, "Server" => PlaceValues {
        /// Send requests to the ingest at this URL; if not given, to that of the profile, or to http://127.0.0.1:8080
        server: Option<Server> = ["URL"] Server::parse;
        /// Use this profile; if not given, the one of the app
        profile: Option<String> = ["NAME"] profile::name;
    }
}

settings! {
    /// The flags of an app's secret.
    pub struct SecretArgs, "Server" => SecretValues {
        /// Log in with this secret of the app. Other users of the machine can read a command line, but not a variable
        secret or secret_file: Option<Secret> = ["SECRET"] secret;
    }
}

fn secret(text: &str) -> Result<Secret, String> {
    Secret::new(text).map_err(|bad| bad.to_string())
}

/// The flags of a command that talks to a server.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    secret: SecretArgs,
}

impl PlaceArgs {
    /// Returns the server and the name of the profile under which an app is saved there.
    pub(crate) fn to_save(&self, app: &AppId) -> anyhow::Result<(Server, String)> {
        let mut errors = ConfigErrors::default();
        let values = self.values(&mut errors);
        let PlaceValues { server, profile } = errors.finish(values)?;
        let server = server.map_or_else(default_server, Ok)?;
        Ok((server, profile.unwrap_or_else(|| app.to_string())))
    }
}

impl ServerArgs {
    /// Returns what the command line asks for.
    ///
    /// # Errors
    /// If a flag is wrong.
    fn wanted(&self) -> Result<Wanted, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let values = self.place.values(&mut errors).zip(self.secret.values(&mut errors));
        let (place, secret) = errors.finish(values)?;
        Ok(Wanted { server: place.server, secret: secret.secret, profile: place.profile })
    }

    /// Returns the parts of a profile: the server, the name, and the secret that was given.
    pub(crate) fn to_save(&self, app: &AppId) -> anyhow::Result<(Server, String, Option<Secret>)> {
        let secret = self.wanted()?.secret;
        let (server, name) = self.place.to_save(app)?;
        Ok((server, name, secret))
    }

    /// Makes the client of an app.
    ///
    /// # Errors
    /// If a flag is wrong, or neither they nor a profile have the app's secret.
    pub(crate) fn client(&self, app: &AppId, out: Output) -> anyhow::Result<Client> {
        let wanted = self.wanted()?;
        let profiles = match wanted.secret.is_some() && wanted.profile.is_none() {
            true => Default::default(),
            false => profile_file()?.read()?,
        };
        let client = profiles.client(app, wanted)?;
        if client.server().is_unencrypted() {
            out.note(format_args!(
                "warning: the secret goes to {} unencrypted, so machines on the way can read it: use \
                 https://",
                client.server()
            ));
        }
        Ok(client)
    }

    /// Makes the client of an app if the command is for a server: one of its flags is given, or there is
    /// no store here and a profile has the app.
    ///
    /// # Errors
    /// As [`Self::client`].
    pub(crate) fn client_if_asked(
        &self,
        app: &AppId,
        engines: &EngineSettings,
        out: Output,
    ) -> anyhow::Result<Option<Client>> {
        let Wanted { server, secret, profile } = self.wanted()?;
        let is_asked = server.is_some() || secret.is_some() || profile.is_some();
        if is_asked && means_store(env::args_os().skip(1))? {
            out.note("PUSH_SERVER, PUSH_PROFILE and PUSH_SECRET are not used: the command line names a store");
            return Ok(None);
        }
        let may_be = matches!(&engines.index, IndexUrl::Sqlite(file) if file.parent() == Some(Path::new(DATA_DIR)))
            && profile_file().is_ok_and(|file| file.path().exists());
        let has_profile = || anyhow::Ok(profile_file()?.read()?.choose(app, None)?.is_some());
        let is_there = is_there(&engines.index);
        if is_asked || (may_be && !is_there && has_profile()?) {
            return self.client(app, out).map(Some);
        }
        // Profiles that cannot be read do not matter to a command on the store.
        if may_be && is_there && has_profile().unwrap_or(false) {
            out.note(format_args!("reading ./{DATA_DIR}; --profile NAME asks the server"));
        }
        Ok(None)
    }
}

/// Returns true if the command line names a store and no server: a variable for the server then has no effect,
/// because a flag is meant more than a variable that was set for other commands.
///
/// # Errors
/// If the command line names both.
fn means_store(arguments: impl Iterator<Item = OsString>) -> anyhow::Result<bool> {
    const STORE: [&str; 3] = ["--index-url", "--index-url-file", "--data-dir"];
    const SERVER: [&str; 4] = ["--server", "--profile", "--secret", "--secret-file"];
    let (mut store, mut server) = (None, None);
    for argument in arguments {
        let text = argument.to_string_lossy().into_owned();
        let flag = text.split('=').next().unwrap_or_default();
        store = store.or(STORE.into_iter().find(|known| *known == flag));
        server = server.or(SERVER.into_iter().find(|known| *known == flag));
    }
    match (store, server) {
        (Some(store), Some(server)) => {
            bail!("{store} names a store, and {server} a server to ask: leave out one of them")
        }
        (store, _) => Ok(store.is_some()),
    }
}

/// Returns true unless this is an embedded index that was not made yet.
pub(crate) fn is_there(index: &IndexUrl) -> bool {
    match index {
        IndexUrl::Sqlite(file) => file.exists(),
        _ => true,
    }
}

/// Returns the file of the user's profiles.
///
/// # Errors
/// If the environment names no place for it.
pub(crate) fn profile_file() -> anyhow::Result<ProfileFile> {
    ProfileFile::of_user(|name| env::var_os(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_for_the_store_outranks_variables_for_a_server_and_two_flags_are_an_error() {
        let means = |line: &str| means_store(line.split(' ').map(OsString::from));
        assert!(!means("message list news").unwrap());
        assert!(!means("message list news --server=http://h").unwrap());
        assert!(means("message list news --index-url redis://h").unwrap());
        assert!(means("--data-dir=d message list news").unwrap());
        let both = means("message list news --data-dir d --secret-file f").unwrap_err().to_string();
        assert!(both.contains("--data-dir") && both.contains("--secret-file"), "{both}");
    }
}
