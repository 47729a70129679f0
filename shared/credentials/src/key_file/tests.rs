use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("device-keys.json")
}

fn kids(keys: &KeySet) -> Vec<&str> {
    keys.keys().iter().map(crate::Key::kid).collect()
}

/// As if the interval had passed.
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
    assert!(matches!(KeyFile::create(&path, UnixMillis(6)), Err(KeyFileError::Exists(_))));
    let refused = write::create(&path, b"by a second program at the same moment");
    assert!(matches!(refused, Err(KeyFileError::Exists(_))));
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
        assert!(matches!(error, KeyFileError::Format(_)), "{text}: {error:?}");
    }
    let absent = KeyFile::open(&folder.path().join("absent")).unwrap_err();
    assert!(matches!(absent, KeyFileError::Read(..)));
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
