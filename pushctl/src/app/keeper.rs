//! Keeps the new secret of an app in a profile, or prints it.

use anyhow::Context as _;
use push_model::ids::AppId;
use push_operator::{
    app::NewSecret,
    profile::{Profile, ProfileFile, Profiles},
    server::Server,
};

use super::table::print_secret;
use crate::{
    output::Output,
    server::{PlaceArgs, profile, profile_file},
};

/// The profile that gets a new secret, if it is to be kept.
pub(super) struct Keeper(Option<Target>);

struct Target {
    file: ProfileFile,
    server: Server,
    name: String,
}

impl Keeper {
    /// Checks, before the secret is made, that the profile can be saved.
    ///
    /// # Errors
    /// If the profiles cannot be read, or the name is taken for another app or server.
    pub(super) fn check(place: Option<PlaceArgs>, app: &AppId) -> anyhow::Result<Self> {
        let Some(place) = place else { return Ok(Self(None)) };
        let (server, name) = place.to_save(app)?;
        let file = profile_file()?;
        file.change(|all| all.check_free(&name, app, &server))?;
        Ok(Self(Some(Target { file, server, name })))
    }

    /// Saves the secret, or prints it. If it cannot be saved, it is printed, because it is not shown again.
    ///
    /// # Errors
    /// If the profile cannot be saved, or standard output is closed.
    pub(super) fn print(self, new: &NewSecret, out: Output) -> anyhow::Result<()> {
        let Some(Target { file, server, name }) = self.0 else { return print_secret(new, out) };
        let profile = Profile::new(new.app_id.clone(), &server, &new.secret);
        let save = |all: &mut Profiles| {
            all.check_free(&name, &new.app_id, &server)?;
            Ok(all.save(&name, profile))
        };
        match file.change(save) {
            Ok(saved) => profile::print(&saved, out),
            Err(error) => {
                print_secret(new, out)?;
                Err(error).context("the secret is not in the profile")
            }
        }
    }
}
