//! Writes backups, reads them, and refuses damaged ones.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use push_index::{
    Apps as _, Transfer as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::{
    app::{App, AppKey},
    attributes::Attribute,
    custom::{CustomId, ValueType},
    device::{Device, TransportKind},
    registration::{Serial, Stamp},
    secret::Secret,
    time::UnixMillis,
    transfer::{Position, Registration},
};
use sha2::{Digest as _, Sha256};

use super::{
    format::{BLOCK_BYTES, Head, MAGIC, SUM},
    read::Backup,
    write::BackupWriter,
    write_app,
};
use crate::transfer::source::Source as _;

fn registration(n: usize, token: Option<&str>) -> Registration {
    let mut device = Device {
        profile: push_model::profile::Profile::default(),
        client_id: format!("c:{n}").parse().unwrap(),
        attributes: Default::default(),
        transport: if n.is_multiple_of(2) { TransportKind::Mqtt } else { TransportKind::Webhook },
        token: token.map(Into::into),
    };
    device.attributes.set(Attribute::Language, "zh-Hans-CN").unwrap();
    device.attributes.set(Attribute::Brand, "Ünïcode \"x\"").unwrap();
    let registered_at = UnixMillis(1_700_000_000_000 + n as u64);
    let renewed = if device.transport.is_renewed() { 5 } else { 0 };
    let renewed_at = UnixMillis(registered_at.0 + renewed);
    Registration {
        device,
        stamp: Stamp { registered_at, serial: Serial::of(n as u64), renewed_at },
    }
}

fn head(secret: &Secret) -> Head {
    let mut app = App::new("news".parse().unwrap(), secret, UnixMillis(5));
    (app.generation, app.disabled) = (3, true);
    Head { made_at: UnixMillis(7), app }
}

fn write(file: &Path, head: &Head, devices: &[Registration]) {
    let mut writer = BackupWriter::create(file, head).unwrap();
    devices.iter().for_each(|device| writer.add(device).unwrap());
    let written = writer.finish().unwrap();
    assert_eq!(written.devices, devices.len() as u64);
    assert_eq!(written.bytes, fs::metadata(file).unwrap().len());
}

async fn read(backup: &Backup) -> Vec<Registration> {
    let (mut devices, mut at) = (Vec::new(), Some(Position::default()));
    while let Some(from) = at {
        let batch = backup.batch(from).await.unwrap();
        devices.extend(batch.devices);
        at = batch.next;
    }
    devices
}

/// A small backup in a folder of its own.
fn small() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    let devices: Vec<_> = (0..3).map(|n| registration(n, Some("t"))).collect();
    write(&file, &head(&Secret::generate()), &devices);
    (folder, file)
}

fn error(file: &Path) -> String {
    format!("{:#}", Backup::open(file).err().expect("it is refused"))
}

#[tokio::test]
async fn an_app_comes_back_as_it_was_with_many_devices_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    let token = "t".repeat(4096);
    let devices: Vec<_> = (0..2000).map(|n| registration(n, Some(&token))).collect();
    let head = head(&Secret::generate());
    write(&file, &head, &devices);
    let backup = Backup::open(&file).unwrap();
    assert_eq!(backup.head.app, head.app);
    assert_eq!((backup.head.made_at, backup.count()), (UnixMillis(7), 2000));
    assert!(devices.len() * token.len() > 4 * BLOCK_BYTES, "it has several batches");
    let first = backup.batch(Position::default()).await.unwrap();
    assert!(first.next.is_some() && first.devices.len() < devices.len());
    assert_eq!(read(&backup).await, devices);
    let empty = folder.path().join("empty.backup");
    write(&empty, &head, &[]);
    assert_eq!(read(&Backup::open(&empty).unwrap()).await, []);
}

#[tokio::test]
async fn of_a_device_that_registered_again_meanwhile_the_last_record_counts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    let token = "t".repeat(4096);
    let mut devices: Vec<_> = (0..2000).map(|n| registration(n, Some(&token))).collect();
    // In a block of its own, in the same block, and three times.
    let again = [(0, 1999), (1998, 1999), (7, 900), (7, 1500)].map(|(n, at)| {
        let new = UnixMillis(1_800_000_000_000 + at as u64);
        (at, Registration { stamp: Stamp::new(new, Serial::of(3)), ..registration(n, None) })
    });
    for (at, device) in again.into_iter().rev() {
        devices.insert(at, device);
    }
    let mut writer = BackupWriter::create(&file, &head(&Secret::generate())).unwrap();
    devices.iter().for_each(|device| writer.add(device).unwrap());
    assert_eq!(writer.finish().unwrap().devices, 2000, "as many as a restoration finds");
    let backup = Backup::open(&file).unwrap();
    let expected: Vec<_> = devices
        .iter()
        .enumerate()
        .filter(|(at, one)| {
            !devices[at + 1..].iter().any(|later| later.device.client_id == one.device.client_id)
        })
        .map(|(_, one)| one.clone())
        .collect();
    assert_eq!((backup.count(), expected.len()), (2000, 2000));
    assert_eq!(read(&backup).await, expected);
}

#[tokio::test]
async fn a_file_that_changes_after_it_was_checked_is_not_restored() {
    let (_folder, file) = small();
    let other = file.with_extension("other");
    let devices: Vec<_> = (0..3).map(|n| registration(n, Some("u"))).collect();
    write(&other, &head(&Secret::generate()), &devices);
    let backup = Backup::open(&file).unwrap();
    fs::write(&file, fs::read(&other).unwrap()).unwrap();
    let error = backup.batch(Position::default()).await.expect_err("it is noticed");
    assert!(error.to_string().contains("has changed"), "{error:#}");
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for no_file in [Path::new("/dev/null"), folder.path()] {
        assert!(error(no_file).contains("is no regular file"), "{}", error(no_file));
    }
}

#[test]
fn a_backup_is_for_its_owner_only_compact_and_has_no_secret_in_clear() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    let secret = Secret::generate();
    let devices: Vec<_> = (0..10_000).map(|n| registration(n, None)).collect();
    write(&file, &head(&secret), &devices);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&file).unwrap();
    assert!(bytes.len() < 40 * devices.len(), "{} bytes", bytes.len());
    let app = serde_json::to_string(&Backup::open(&file).unwrap().head.app).unwrap();
    assert!(!app.contains(secret.expose()));
    let found = bytes.windows(secret.expose().len()).any(|w| w == secret.expose().as_bytes());
    assert!(!found);
}

#[test]
fn no_file_is_replaced_and_none_is_left_that_is_not_whole() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    let head = head(&Secret::generate());
    let mut unfinished = BackupWriter::create(&file, &head).unwrap();
    unfinished.add(&registration(1, None)).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(!file.exists(), "it has its name only when it is whole");
    drop(unfinished);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // A file that a killed program left is no obstacle, whatever its permissions.
    let left = folder.path().join("news.backup.part");
    fs::write(&left, "x").unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
    write(&file, &head, &[]);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = BackupWriter::create(&file, &head).err().expect("it is refused");
    assert!(refused.to_string().contains("exists already"), "{refused}");
}

#[test]
fn two_backups_to_one_name_do_not_take_each_others_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    let head = head(&Secret::generate());
    let mut first = BackupWriter::create(&file, &head).unwrap();
    first.add(&registration(1, None)).unwrap();
    let second = BackupWriter::create(&file, &head).err().expect("it is refused");
    assert!(second.to_string().contains("another backup is being written"), "{second}");
    assert_eq!(first.finish().unwrap().devices, 1);
    assert!(file.exists());
}

#[test]
fn numbers_that_no_store_compares_exactly_are_refused() {
    const TOO_LARGE: u64 = 1 << 52;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("news.backup");
    // The file is read back as a restoration reads it.
    let refused = |head: &Head, device: &Registration| {
        let mut writer = BackupWriter::create(&file, head).unwrap();
        writer.add(device).unwrap();
        format!("{:#}", writer.finish().unwrap_err())
    };
    let changes: [fn(&mut App); 3] = [
        |app| app.created_at = UnixMillis(TOO_LARGE),
        |app| app.generation = TOO_LARGE,
        |app| app.revision = TOO_LARGE,
    ];
    for change in changes {
        let mut head = head(&Secret::generate());
        change(&mut head.app);
        let text = refused(&head, &registration(1, None));
        assert!(text.contains("no store can keep"), "{text}");
    }
    let stamp = Stamp::new(UnixMillis(1 << 42), Serial::of(0));
    let device = Registration { stamp, ..registration(1, None) };
    let text = refused(&head(&Secret::generate()), &device);
    assert!(text.contains("is damaged"), "{text}");
}

#[test]
fn a_file_that_is_cut_changed_or_longer_anywhere_is_refused() {
    let (_folder, file) = small();
    let good = fs::read(&file).unwrap();
    for at in 0..good.len() {
        fs::write(&file, &good[..at]).unwrap();
        let text = error(&file);
        assert!(text.contains("is damaged") || text.contains("is no backup"), "{at}: {text}");
        let mut changed = good.clone();
        changed[at] ^= 1;
        fs::write(&file, &changed).unwrap();
        assert!(Backup::open(&file).is_err(), "byte {at} was changed");
    }
    fs::write(&file, [&good[..], b"x"].concat()).unwrap();
    assert!(error(&file).contains("behind its end"));
    fs::write(&file, &good).unwrap();
    assert!(Backup::open(&file).is_ok());
}

#[test]
fn a_file_of_a_newer_version_or_of_another_kind_says_what_it_is() {
    let (_folder, file) = small();
    let good = fs::read(&file).unwrap();
    let rest = &good[MAGIC.len() + 1..];
    fs::write(&file, [MAGIC.as_bytes(), b"3", rest].concat()).unwrap();
    assert!(error(&file).contains("version 3") && error(&file).contains("newer pushctl"));
    for other in [&b""[..], b"{}", b"push app backup x\n", &[b'x'; 1000]] {
        fs::write(&file, other).unwrap();
        assert!(error(&file).contains("is no backup of an app"), "{}", error(&file));
    }
}

#[test]
fn a_forged_file_asks_for_no_memory_and_breaks_nothing() {
    let (_folder, file) = small();
    let good = fs::read(&file).unwrap();
    let content = &good[..good.len() - SUM];
    for at in MAGIC.len()..content.len() {
        for byte in [0, 0x7f, 0xff, b'\n', b'D', b'E'] {
            let mut forged = content.to_vec();
            forged[at] = byte;
            let sum = Sha256::digest(&forged);
            forged.extend_from_slice(&sum);
            fs::write(&file, &forged).unwrap();
            // Whatever it says, there is an answer.
            let _ = Backup::open(&file);
        }
    }
}

/// Returns the error of backing up an app whose record was read before the store changed.
async fn refused_backup(app: &App, index: &SqliteIndex, folder: &Path) -> String {
    let file = folder.join("refused.backup");
    let written = write_app(app, &file, false, index, &|_| {}).await;
    assert!(!file.exists());
    written.unwrap_err().to_string()
}

#[tokio::test]
async fn the_copy_that_a_move_left_is_not_backed_up_whether_or_not_the_move_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let settings = SqliteIndexSettings::default();
    let index = SqliteIndex::open(&folder.path().join("i"), "push", settings).await.unwrap();
    let mut app = App::new("news".parse().unwrap(), &Secret::generate(), UnixMillis(1));
    app.leave("redis://there".to_owned(), UnixMillis(2));
    let text = refused_backup(&app, &index, folder.path()).await;
    assert!(text.contains("to redis://there, or a move there has not ended"), "{text}");
}

#[tokio::test]
async fn an_app_that_is_removed_while_it_is_read_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let settings = SqliteIndexSettings::default();
    let index = SqliteIndex::open(&folder.path().join("i"), "push", settings).await.unwrap();
    let app = App::new("news".parse().unwrap(), &Secret::generate(), UnixMillis(1));
    assert!(index.create_app(&app).await.unwrap());
    // The first step of a removal in Redis, whose last one takes the record away.
    assert!(index.update_app(&App { disabled: true, ..app.clone() }).await.unwrap());
    let mut texts = vec![refused_backup(&app, &index, folder.path()).await];
    let disabled = index.app(&app.app_id).await.unwrap().unwrap();
    assert!(index.remove_app(&app.app_id).await.unwrap());
    texts.push(refused_backup(&disabled, &index, folder.path()).await);
    assert!(index.create_app(&app).await.unwrap());
    texts.push(refused_backup(&app, &index, folder.path()).await);
    for text in texts {
        assert!(text.contains("was removed or changed while its devices were read"), "{text}");
    }
}

#[tokio::test]
async fn a_value_that_a_sweep_has_not_taken_away_yet_is_neither_backed_up_nor_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let settings = SqliteIndexSettings::default();
    let index = SqliteIndex::open(&folder.path().join("i"), "push", settings).await.unwrap();
    let mut app = App::new("news".parse().unwrap(), &Secret::generate(), UnixMillis(1));
    for n in 0..24 {
        app.attributes.add(format!("a{n}").parse().unwrap(), ValueType::String).unwrap();
    }
    app.attributes.remove("a7").unwrap();
    app.attributes.add("last".parse().unwrap(), ValueType::String).unwrap();
    assert!(index.create_app(&app).await.unwrap());
    let mut device = registration(1, Some("t"));
    device.device.profile.custom = (1..=25).map(|id| (CustomId(id), "x".into())).collect();
    index.put_registrations(&AppKey::from(&app), std::slice::from_ref(&device)).await.unwrap();
    let of_store = folder.path().join("store.backup");
    write_app(&app, &of_store, false, &index, &|_| {}).await.unwrap();
    device.device.profile.custom.retain(|(id, _)| *id != CustomId(8));
    assert_eq!(read(&Backup::open(&of_store).unwrap()).await, [device]);
}
