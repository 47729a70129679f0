//! Profiles: the server, the app and the secret of later commands, each under a name.
//!
//! A secret of a profile is only sent to the profile's own server, and is never shown.
//!
//! - `file`: keeps them in a file that only its owner can read

mod file;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use push_model::{ids::AppId, secret::Secret};
use serde::{Deserialize, Serialize};

pub use self::file::ProfileFile;
use crate::{client::Client, server::Server};

/// The server of a newcomer: `pushctl standalone` with its defaults.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";

/// All profiles, as the file keeps them.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Profiles {
    current: Option<String>,
    profiles: BTreeMap<String, Profile>,
}

/// A server, and the login of an app there.
#[derive(Clone, Serialize, Deserialize)]
pub struct Profile {
    app: AppId,
    server: String,
    secret: String,
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { app, server, secret: _ } = self;
        f.debug_struct("Profile").field("app", app).field("server", server).finish_non_exhaustive()
    }
}

/// A profile without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProfileView {
    /// Its name.
    pub profile: String,
    /// The app.
    pub app_id: AppId,
    /// The URL of the server.
    pub server: String,
    /// True for the one that `profile use` chose.
    pub in_use: bool,
}

/// The connection that a command line asks for; what is none comes from a profile.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// The server.
    pub server: Option<Server>,
    /// The app's secret.
    pub secret: Option<Secret>,
    /// The name of a profile.
    pub profile: Option<String>,
}

/// Reads the name of a profile, which has the form of an App ID.
///
/// # Errors
/// If it has another form.
pub fn name(text: &str) -> Result<String, String> {
    text.parse::<AppId>().map(|name| name.to_string()).map_err(|bad| bad.to_string())
}

impl Profile {
    /// Makes a profile.
    pub fn new(app: AppId, server: &Server, secret: &Secret) -> Self {
        Self { app, server: server.to_string(), secret: secret.expose().to_owned() }
    }

    fn client(&self, name: &str) -> anyhow::Result<Client> {
        let damaged = || format!("profile {name} is damaged: save it again");
        let server = Server::parse(&self.server).map_err(anyhow::Error::msg);
        let server = server.with_context(damaged)?;
        let secret = Secret::new(&self.secret).with_context(damaged)?;
        Ok(Client::new(server, &self.app, &secret))
    }
}

impl Profiles {
    /// Lists them by name.
    pub fn list(&self) -> Vec<ProfileView> {
        self.profiles.iter().map(|(name, profile)| self.view(name, profile)).collect()
    }

    /// Shows one; without a name, the one in use.
    ///
    /// # Errors
    /// If there is none of this name, or none is in use.
    pub fn show(&self, name: Option<&str>) -> anyhow::Result<ProfileView> {
        let name = name.or(self.current.as_deref());
        let name =
            name.context("no profile is in use: choose one with `pushctl profile use NAME`")?;
        Ok(self.view(name, self.find(name)?))
    }

    /// Makes a profile the one in use.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn set_current(&mut self, name: &str) -> anyhow::Result<ProfileView> {
        self.find(name)?;
        self.current = Some(name.to_owned());
        self.show(None)
    }

    /// Checks that a profile can be saved under this name: one that is there is only replaced by one
    /// of the same app at the same server.
    ///
    /// # Errors
    /// If it has another app or another server.
    pub fn check_free(&self, name: &str, app: &AppId, server: &Server) -> anyhow::Result<()> {
        match self.profiles.get(name) {
            Some(there) if there.app != *app || there.server != server.to_string() => bail!(
                "profile {name} is for app {} at {}: choose another name with --profile",
                there.app,
                there.server
            ),
            _ => Ok(()),
        }
    }

    /// Saves a profile. The first one is in use from then on.
    pub fn save(&mut self, name: &str, profile: Profile) -> ProfileView {
        self.current.get_or_insert_with(|| name.to_owned());
        let view = self.view(name, &profile);
        self.profiles.insert(name.to_owned(), profile);
        view
    }

    /// Forgets a profile.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn remove(&mut self, name: &str) -> anyhow::Result<ProfileView> {
        let view = self.view(name, self.find(name)?);
        self.profiles.remove(name);
        self.current.take_if(|current| current == name);
        Ok(view)
    }

    /// Chooses the profile of an app: the named one, else the one in use, else the only one.
    ///
    /// # Errors
    /// If the named one is missing or has another app, or if none is in use and several have the app.
    pub fn choose(&self, app: &AppId, name: Option<&str>) -> anyhow::Result<Option<&str>> {
        if let Some(name) = name {
            let (name, profile) = self.find_entry(name)?;
            if profile.app != *app {
                bail!("profile {name} is for app {}, not for {app}", profile.app);
            }
            return Ok(Some(name));
        }
        let of_app = |name: &&str| self.profiles.get(*name).is_some_and(|of| of.app == *app);
        if let Some(current) = self.current.as_deref().filter(of_app) {
            return Ok(Some(current));
        }
        let names: Vec<&str> = self.profiles.keys().map(String::as_str).filter(of_app).collect();
        match names[..] {
            [] => Ok(None),
            [name] => Ok(Some(name)),
            _ => bail!(
                "several profiles are for app {app}: choose with --profile, or with `pushctl profile \
                 use`: {}",
                names.join(", ")
            ),
        }
    }

    /// Makes the client of an app from what the command line asks for and the profiles.
    ///
    /// # Errors
    /// If there is no secret, or the profile's is for another server.
    pub fn client(&self, app: &AppId, wanted: Wanted) -> anyhow::Result<Client> {
        let Wanted { server, secret, profile } = wanted;
        let chosen = match (&secret, &profile) {
            (Some(_), None) => None,
            _ => self.choose(app, profile.as_deref())?,
        };
        let of_profile = match chosen {
            Some(name) => Some((name, self.find(name)?.client(name)?)),
            None => None,
        };
        if let Some(secret) = secret {
            let of_profile = of_profile.map(|(_, client)| client.server().clone());
            let server = server.or(of_profile).map_or_else(default_server, Ok)?;
            return Ok(Client::new(server, app, &secret));
        }
        let Some((name, client)) = of_profile else {
            bail!(
                "no secret of app {app}: set PUSH_SECRET, or name its file with --secret-file, or \
                 keep it in a profile with `pushctl profile add {app} --secret-file FILE`"
            );
        };
        if let Some(server) = server
            && server != *client.server()
        {
            bail!(
                "profile {name} is for {}, and its secret is not sent to {server}: give the secret \
                 for that server with --secret-file",
                client.server()
            );
        }
        Ok(client)
    }

    fn find(&self, name: &str) -> anyhow::Result<&Profile> {
        Ok(self.find_entry(name)?.1)
    }

    fn find_entry(&self, name: &str) -> anyhow::Result<(&str, &Profile)> {
        let found = self.profiles.get_key_value(name).map(|(name, profile)| (&**name, profile));
        found.with_context(|| format!("there is no profile {name}: see `pushctl profile list`"))
    }

    fn view(&self, name: &str, profile: &Profile) -> ProfileView {
        ProfileView {
            profile: name.to_owned(),
            app_id: profile.app.clone(),
            server: profile.server.clone(),
            in_use: self.current.as_deref() == Some(name),
        }
    }
}

/// Returns the server of commands that name none.
///
/// # Errors
/// Never: it is a constant.
pub fn default_server() -> anyhow::Result<Server> {
    Server::parse(DEFAULT_SERVER).map_err(anyhow::Error::msg)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "9b1f4c07d2e86a35f0c4b7d91e6a2835";

    fn app(text: &str) -> AppId {
        text.parse().unwrap()
    }

    fn server(url: &str) -> Server {
        Server::parse(url).unwrap()
    }

    fn with(names: &[(&str, &str, &str)]) -> Profiles {
        let mut profiles = Profiles::default();
        for (name, of, url) in names {
            let secret = Secret::new(SECRET).unwrap();
            profiles.save(name, Profile::new(app(of), &server(url), &secret));
        }
        profiles
    }

    #[test]
    fn the_profile_of_an_app_is_the_named_one_then_the_one_in_use_then_the_only_one() {
        let mut profiles = with(&[
            ("live", "news", "https://a"),
            ("test", "news", "https://b"),
            ("c", "c", "https://c"),
        ]);
        let chosen =
            |of: &Profiles, name| of.choose(&app("news"), name).unwrap().map(str::to_owned);
        assert_eq!(chosen(&profiles, None).as_deref(), Some("live"), "the first is in use");
        assert_eq!(chosen(&profiles, Some("test")).as_deref(), Some("test"));
        profiles.set_current("test").unwrap();
        assert_eq!(chosen(&profiles, None).as_deref(), Some("test"));
        profiles.set_current("c").unwrap();
        let several = profiles.choose(&app("news"), None).unwrap_err().to_string();
        assert!(several.contains("--profile") && several.ends_with("live, test"), "{several}");
        assert_eq!(profiles.choose(&app("c"), None).unwrap(), Some("c"));
        assert_eq!(profiles.choose(&app("other"), None).unwrap(), None);
        let wrong = profiles.choose(&app("news"), Some("c")).unwrap_err().to_string();
        assert!(wrong.contains("is for app c, not for news"), "{wrong}");
    }

    #[test]
    fn the_secret_of_a_profile_is_sent_to_its_own_server_only() {
        let profiles = with(&[("news", "news", "https://a")]);
        let to = |wanted| profiles.client(&app("news"), wanted).map(|it| it.server().to_string());
        assert_eq!(to(Wanted::default()).unwrap(), "https://a");
        let elsewhere = Wanted { server: Some(server("https://b")), ..Wanted::default() };
        let refused = to(elsewhere.clone()).unwrap_err().to_string();
        assert!(
            refused.contains("not sent to https://b") && !refused.contains(SECRET),
            "{refused}"
        );
        let secret = Some(Secret::new(SECRET).unwrap());
        assert_eq!(to(Wanted { secret: secret.clone(), ..elsewhere }).unwrap(), "https://b");
        assert_eq!(to(Wanted { secret, ..Wanted::default() }).unwrap(), DEFAULT_SERVER);
        let none = profiles.client(&app("other"), Wanted::default()).unwrap_err().to_string();
        assert!(none.contains("PUSH_SECRET") && none.contains("--secret-file"), "{none}");
    }

    #[test]
    fn a_profile_is_never_replaced_by_one_of_another_app_or_server() {
        let profiles = with(&[("news", "news", "https://a")]);
        assert!(profiles.check_free("news", &app("news"), &server("https://a")).is_ok());
        assert!(profiles.check_free("new", &app("b"), &server("https://b")).is_ok());
        for (of, url) in [("news", "https://b"), ("b", "https://a")] {
            let refused = profiles.check_free("news", &app(of), &server(url)).unwrap_err();
            assert!(refused.to_string().contains("--profile"), "{refused}");
        }
    }

    #[test]
    fn no_view_and_no_debug_text_of_a_profile_has_the_secret() {
        let profiles = with(&[("news", "news", "https://a")]);
        let seen = format!("{profiles:?} {}", serde_json::to_string(&profiles.list()).unwrap());
        assert!(!seen.contains(SECRET), "{seen}");
    }
}
