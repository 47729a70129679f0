use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use push_model::app::AppKey;

use super::*;

fn path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("device-keys.json")
}

fn kids(keys: &KeySet) -> Vec<&str> {
    keys.keys().iter().map(crate::Key::kid).collect()
}

/// Looks at the file as if the interval had passed.
fn look_again(file: &KeyFile) -> Arc<KeySet> {
    file.check(Instant::now())
}

#[test]
fn a_new_file_is_for_its_owner_only_and_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    let made = KeyFile::create(&path, UnixMillis(5)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let file = KeyFile::open(&path).unwrap();
    assert_eq!(kids(&file.current()), kids(&made));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_file_that_exists_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    KeyFile::create(&path, UnixMillis(5)).unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(KeyFile::create(&path, UnixMillis(6)), Err(KeyFileError::Exists(..))));
    let refused = write::create(&path, b"by a second program at the same moment", KeySet::WORDS);
    assert!(matches!(refused, Err(KeyFileError::Exists(..))));
    KeyFile::open_or_create(&path, UnixMillis(6)).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_rotation_is_seen_by_a_program_that_has_the_file_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    let now = UnixMillis::now();
    let file = KeyFile::open_or_create(&path, now).unwrap();
    let before = kids(&file.current()).concat();
    let rotation = Rotation { lead: Duration::from_secs(60), overlap: Duration::from_secs(60) };
    let rotated = KeyFile::rotate(&path, rotation, now).unwrap();
    assert_eq!(kids(&file.current()).concat(), before, "not before the interval has passed");
    assert_eq!(kids(&look_again(&file)), kids(&rotated));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(look_again(&file).keys()[0].verifies_until, rotated.keys()[0].verifies_until);
}

#[test]
fn a_file_that_was_spoiled_or_removed_leaves_the_keys_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    let file = KeyFile::open_or_create(&path, UnixMillis(0)).unwrap();
    let (good, before) = (fs::read(&path).unwrap(), kids(&file.current()).concat());
    fs::write(&path, b"{}").unwrap();
    assert_eq!(kids(&look_again(&file)).concat(), before);
    fs::remove_file(&path).unwrap();
    assert_eq!(kids(&look_again(&file)).concat(), before);
    fs::write(&path, good).unwrap();
    assert_eq!(kids(&look_again(&file)).concat(), before);
}

#[test]
fn what_is_no_key_file_is_refused_without_repeating_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    KeyFile::create(&path, UnixMillis(5)).unwrap();
    let good = String::from_utf8(fs::read(&path).unwrap()).unwrap();
    let spoiled = [
        String::new(),
        "[]".to_owned(),
        r#"{"version":1,"keys":[]}"#.to_owned(),
        good.replace("\"version\": 1", "\"version\": 2"),
        good.replace("\"kid\": \"", "\"kid\": \"x"),
        good.replace("private_key\": \"", "private_key\": \"AAAA"),
        good.replace("1970-01-01", "yesterday"),
        format!("{}{good}", " ".repeat(usize::try_from(MAX_SIZE).unwrap())),
    ];
    for text in spoiled {
        fs::write(&path, &text).unwrap();
        let error = KeyFile::open(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::Format(..)), "{text}: {error:?}");
    }
}

#[test]
fn each_error_names_a_way_out_that_the_next_command_does_not_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    let rotation = Rotation { lead: Duration::ZERO, overlap: Duration::ZERO };
    let absent = [
        KeyFile::open(&path).unwrap_err(),
        KeyFile::rotate(&path, rotation, UnixMillis(0)).unwrap_err(),
    ];
    for error in absent {
        assert!(matches!(error, KeyFileError::Missing(..)), "{error:?}");
        assert!(error.to_string().contains("pushctl key create"), "{error}");
    }
    fs::write(&path, b"").unwrap();
    assert!(matches!(KeyFile::create(&path, UnixMillis(0)), Err(KeyFileError::Exists(..))));
    let damaged = KeyFile::rotate(&path, rotation, UnixMillis(0)).unwrap_err().to_string();
    assert!(damaged.contains("remove it and run `pushctl key create`"), "{damaged}");
    fs::remove_file(&path).unwrap();
    KeyFile::create(&path, UnixMillis(0)).unwrap();
    let unreadable = KeyFile::open(folder.path()).unwrap_err();
    assert!(matches!(unreadable, KeyFileError::Read(..)), "{unreadable:?}");
    assert!(!unreadable.to_string().contains("create"), "{unreadable}");
}

/// Another owner takes root; another user's test looks at the mode alone.
#[test]
fn a_rotation_leaves_the_file_to_its_owner_and_group() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (path(&folder), folder.path().join("link"));
    KeyFile::create(&path, UnixMillis(5)).unwrap();
    let access = |path: &Path| {
        let file = fs::symlink_metadata(path).unwrap();
        (file.uid(), file.gid(), file.mode() & 0o777)
    };
    if fs::metadata(&path).unwrap().uid() == 0 {
        std::os::unix::fs::chown(&path, Some(4321), Some(8765)).unwrap();
    }
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let rotation = Rotation { lead: Duration::ZERO, overlap: Duration::from_secs(60) };
    for (mode, kept) in [(0o600, 0o600), (0o640, 0o640), (0o664, 0o640)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let (uid, gid, _) = access(&path);
        KeyFile::rotate(&link, rotation, UnixMillis(6)).unwrap();
        assert_eq!(access(&path), (uid, gid, kept), "{mode:o}");
    }
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(KeyFile::open(&link).unwrap().current().keys().len(), 4);
}

#[test]
fn what_a_killed_writer_left_is_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    let left = |name: &str| fs::write(folder.path().join(name), b"a private key").unwrap();
    let names = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    let others = ["device-keys.json.mine.new", "other.0123456789abcdef.new"];
    others.iter().for_each(|name| left(name));
    left("device-keys.json.0123456789abcdef.new");
    KeyFile::create(&path, UnixMillis(0)).unwrap();
    let expected = ["device-keys.json", others[0], others[1]];
    assert_eq!(names(), expected);
    left("device-keys.json.fedcba9876543210.new");
    let rotation = Rotation { lead: Duration::ZERO, overlap: Duration::ZERO };
    KeyFile::rotate(&path, rotation, UnixMillis(0)).unwrap();
    assert_eq!(names(), expected);
}

#[test]
fn a_token_of_a_key_that_is_new_makes_a_program_look_at_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    let now = UnixMillis::now();
    let file = KeyFile::open_or_create(&path, now).unwrap();
    let rotation = Rotation { lead: Duration::ZERO, overlap: Duration::ZERO };
    let rotated = KeyFile::rotate(&path, rotation, now).unwrap();
    let app = AppKey { id: "news".parse().unwrap(), generation: 0 };
    let token = rotated
        .issue(&app, &"one".parse().unwrap(), Default::default(), now, Duration::from_secs(60))
        .unwrap();
    let log_in = || file.authenticate("news:one", "news:one", token.text.as_bytes(), now);
    assert_eq!(log_in(), Err(TokenError::UnknownKey), "the file was looked at within the second");
    // As if a second had passed.
    file.state.write().unwrap().checked = Instant::now() - UNKNOWN_KEY_INTERVAL;
    assert!(log_in().is_ok());
}

#[test]
fn a_full_file_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = path(&folder);
    KeyFile::create(&path, UnixMillis(0)).unwrap();
    let rotation = Rotation { lead: Duration::ZERO, overlap: Duration::from_secs(60) };
    for _ in 1..crate::MAX_KEYS {
        KeyFile::rotate(&path, rotation, UnixMillis(1)).unwrap();
    }
    assert_eq!(KeyFile::open(&path).unwrap().current().keys().len(), crate::MAX_KEYS);
}
