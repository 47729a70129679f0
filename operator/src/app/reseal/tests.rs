use std::{path::PathBuf, time::Duration};

use push_index::{
    Apps as _, AuditTrail as _,
    sqlite::{SqliteIndex, SqliteIndexSettings},
};
use push_model::secret::Secret;

use super::*;
use crate::keys::{SealChange, seal};

/// An installation whose keys that seal are in a file.
struct Place {
    folder: tempfile::TempDir,
    index: SqliteIndex,
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = SqliteIndexSettings::default();
        let index =
            SqliteIndex::open(&folder.path().join("index"), "push", settings).await.unwrap();
        let place = Self { folder, index };
        place.change(SealChange::Create).await.unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("seal-keys.json")
    }

    /// Changes the keys. Returns how many there are then.
    async fn change(&self, change: SealChange) -> anyhow::Result<usize> {
        seal(&self.file(), change, Some(&self.index), &Actor::of_process("test"))
            .await
            .map(|keys| keys.len())
    }

    async fn rotate(&self, lead: Duration) {
        self.change(SealChange::Rotate { lead }).await.unwrap();
    }

    async fn reseal(&self) -> anyhow::Result<Resealed> {
        let keys = SealFile::open(&self.file()).unwrap();
        reseal(&self.index, &keys, &Actor::of_process("test")).await
    }

    /// Makes an app with accounts, which are sealed now; one at FCM may be damaged.
    async fn add(&self, name: &str, moved: bool, damaged: bool) {
        let mut app = App::new(name.parse().unwrap(), &Secret::generate(), UnixMillis(1));
        let keys = SealFile::open(&self.file()).unwrap().current();
        for kind in [TransportKind::Fcm, TransportKind::Apns] {
            let context = ProviderAccount::context(&app.app_id, kind);
            let is_damaged = damaged && kind == TransportKind::Fcm;
            let context = if is_damaged { "another app".to_owned() } else { context };
            let sealed = keys.seal(b"secret", &context, UnixMillis::now()).unwrap();
            let account = ProviderAccount { set_at: UnixMillis(1), summary: "s".into(), sealed };
            app.transports.insert(kind, account);
        }
        if moved {
            app.leave("redis://there".to_owned(), UnixMillis(2));
        }
        assert!(self.index.create_app(&app).await.unwrap());
    }
}

#[tokio::test]
async fn before_a_new_key_seals_nothing_is_sealed_anew_and_no_key_is_dropped() {
    let place = Place::new().await;
    place.add("news", false, false).await;
    place.rotate(Duration::from_secs(3600)).await;
    let from = SealFile::open(&place.file()).unwrap().current().list().last().unwrap().1;
    let texts = [
        place.reseal().await.unwrap_err().to_string(),
        place.change(SealChange::DropEarlier).await.unwrap_err().to_string(),
    ];
    for text in texts {
        assert!(text.contains(&format!("seals from {from} on. Run the command again")), "{text}");
    }
    assert_eq!(SealFile::open(&place.file()).unwrap().current().list().count(), 2);
}

#[tokio::test]
async fn an_earlier_key_is_dropped_once_no_account_needs_it_those_of_moved_apps_included() {
    let place = Place::new().await;
    place.add("moved", true, false).await;
    place.add("news", false, false).await;
    place.rotate(Duration::ZERO).await;
    let text = place.change(SealChange::DropEarlier).await.unwrap_err().to_string();
    assert!(text.contains("4 accounts") && text.contains("moved/fcm, "), "{text}");
    let resealed = place.reseal().await.unwrap();
    assert_eq!((resealed.resealed, resealed.failed), (4, Vec::new()));
    assert_eq!(place.change(SealChange::DropEarlier).await.unwrap(), 1);
    let keys = SealFile::open(&place.file()).unwrap().current();
    for app in place.index.apps().await.unwrap() {
        for (kind, account) in &app.transports {
            let context = ProviderAccount::context(&app.app_id, *kind);
            assert_eq!(keys.open(&account.sealed, &context).unwrap(), b"secret", "{context}");
        }
    }
}

#[tokio::test]
async fn a_damaged_account_is_named_and_keeps_the_earlier_key_while_all_others_are_sealed() {
    let place = Place::new().await;
    place.add("damaged", false, true).await;
    place.add("news", false, false).await;
    place.rotate(Duration::ZERO).await;
    let Resealed { resealed, failed } = place.reseal().await.unwrap();
    let [one] = &failed[..] else { panic!("{failed:?}") };
    assert_eq!((resealed, one.app_id.as_str()), (3, "damaged"));
    assert_eq!(one.transport, Some(TransportKind::Fcm));
    let text = place.change(SealChange::DropEarlier).await.unwrap_err().to_string();
    assert!(text.contains("1 accounts are not sealed") && text.contains("(damaged/fcm)"), "{text}");
    assert_eq!(place.reseal().await.unwrap().resealed, 0, "the others are");
}

#[tokio::test]
async fn accounts_that_were_sealed_before_it_broke_off_are_in_the_audit_trail() {
    let place = Place::new().await;
    for number in 0..50 {
        place.add(&format!("app-{number}"), false, false).await;
    }
    place.rotate(Duration::ZERO).await;
    let is_recorded = async || {
        let events = place.index.audit(10).await.unwrap();
        events.iter().any(|event| event.action == Action::AccountsResealed.name() && event.done)
    };
    let recorded = async {
        while !is_recorded().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = recorded => {}
        ended = place.reseal() => panic!("it ended first: {ended:?}"),
    }
    // It was broken off: the rest goes on with the next call, which is recorded as well.
    let rest = place.reseal().await.unwrap();
    assert!(rest.resealed > 0 && rest.failed.is_empty(), "{rest:?}");
}
