//! The file of the profiles: JSON, in the configuration folder of its owner, who alone can read it.
//! It is replaced as a whole, and two changes at the same time happen one after the other.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

use super::Profiles;

/// The folder in the configuration folder of the user.
const FOLDER: &str = "pushctl";
const NAME: &str = "profiles.json";
/// The name of a file that is not complete yet.
const UNFINISHED: &str = "profiles.json.new";
/// The largest file that is read, in bytes.
const MAX_SIZE: u64 = 1024 * 1024;

/// The place of the profiles.
#[derive(Debug, Clone)]
pub struct ProfileFile {
    folder: PathBuf,
}

impl ProfileFile {
    /// Finds the place: `$XDG_CONFIG_HOME/pushctl`, or `~/.config/pushctl` without that variable.
    ///
    /// # Errors
    /// If the environment names no home.
    pub fn of_user(variable: impl Fn(&str) -> Option<OsString>) -> anyhow::Result<Self> {
        // A relative path counts as unset (XDG Base Directory Specification).
        let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = absolute("XDG_CONFIG_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".config")))
            .context("there is no place for profiles: set HOME or XDG_CONFIG_HOME")?;
        Ok(Self { folder: config.join(FOLDER) })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(NAME)
    }

    /// Reads the profiles; there are none without a file.
    ///
    /// # Errors
    /// If other users can read the file, or it cannot be read.
    pub fn read(&self) -> anyhow::Result<Profiles> {
        let path = self.path();
        let shown = path.display();
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Profiles::default()),
            opened => opened.with_context(|| format!("cannot read the profiles in {shown}"))?,
        };
        let metadata = file.metadata().with_context(|| format!("cannot read {shown}"))?;
        if metadata.mode() & 0o077 != 0 {
            bail!("other users can read the secrets in {shown}: run `chmod 600 {shown}`");
        }
        let mut text = String::new();
        let read = file.take(MAX_SIZE + 1).read_to_string(&mut text);
        read.with_context(|| format!("cannot read the profiles in {shown}"))?;
        ensure!(text.len() as u64 <= MAX_SIZE, "{shown} is too large for a file of profiles");
        let profiles = serde_json::from_str(&text).ok();
        profiles.with_context(|| format!("{shown} holds no profiles: correct it or remove it"))
    }

    /// Changes the profiles, and returns what the change does.
    ///
    /// # Errors
    /// If the file cannot be read or written, or the change fails; then the file stays as it was.
    pub fn change<T>(
        &self,
        change: impl FnOnce(&mut Profiles) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let path = self.path();
        let failed = || format!("cannot write the profiles to {}", path.display());
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.with_context(failed)?;
        let folder = File::open(&self.folder).with_context(failed)?;
        folder.lock().with_context(failed)?;
        let mut profiles = self.read()?;
        let changed = change(&mut profiles)?;
        let text = serde_json::to_string_pretty(&profiles)?;
        replace(&self.folder, &path, &text)
            .and_then(|()| folder.sync_all())
            .with_context(failed)?;
        Ok(changed)
    }
}

/// Writes the text beside the file, and then puts it in its place.
fn replace(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    let unfinished = folder.join(UNFINISHED);
    // A command that was killed may have left it.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use push_model::secret::Secret;

    use super::*;
    use crate::{profile::Profile, server::Server};

    fn in_folder(folder: &Path) -> ProfileFile {
        let home = folder.as_os_str().to_owned();
        ProfileFile::of_user(|name| (name == "HOME").then(|| home.clone())).unwrap()
    }

    fn save(file: &ProfileFile) -> anyhow::Result<()> {
        let server = Server::parse("https://a").unwrap();
        let profile = Profile::new("news".parse().unwrap(), &server, &Secret::generate());
        file.change(|all| Ok(all.save("news", profile))).map(drop)
    }

    #[test]
    fn the_file_is_for_its_owner_and_is_refused_when_others_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = in_folder(folder.path());
        assert!(file.read().unwrap().list().is_empty() && !file.path().exists());
        save(&file).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file.path()), mode(&file.folder)), (0o600, 0o700));
        assert_eq!(file.read().unwrap().list().len(), 1);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o640)).unwrap();
        for refused in [file.read().map(drop), save(&file)] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("chmod 600"), "{text}");
        }
    }

    #[test]
    fn the_configuration_folder_of_the_environment_comes_before_the_one_at_home() {
        let at = |config: &str, home: &str| {
            let variable = |name: &str| match name {
                "XDG_CONFIG_HOME" => Some(config.into()),
                _ => Some(home.into()),
            };
            ProfileFile::of_user(variable).map(|file| file.path())
        };
        assert_eq!(at("/c", "/h").unwrap(), Path::new("/c/pushctl/profiles.json"));
        for unset in ["", "relative"] {
            assert_eq!(at(unset, "/h").unwrap(), Path::new("/h/.config/pushctl/profiles.json"));
        }
        assert!(at("", "").is_err());
    }
}
