//! Keys of the admin API.

use push_index::{AdminKeyAdded, Index};
use push_model::{
    admin_key::{AdminKey, AdminKeyText, KeyDigest, MAX_ADMIN_KEYS, Role},
    time::UnixMillis,
};

use crate::index::support::app;

fn key(name: &str) -> AdminKey {
    AdminKey {
        name: name.parse().unwrap(),
        role: Role::Operator,
        app: Some(app()),
        generation: 3,
        made_at: UnixMillis(7),
        sha256: KeyDigest::of(&AdminKeyText::generate()),
    }
}

pub(crate) async fn a_key_is_found_by_its_digest_until_it_is_removed(index: &dyn Index) {
    let (one, other) = (key("one"), key("other"));
    assert_eq!(index.add_admin_key(&one).await.unwrap(), AdminKeyAdded::Added);
    assert_eq!(index.add_admin_key(&other).await.unwrap(), AdminKeyAdded::Added);
    assert_eq!(index.add_admin_key(&key("one")).await.unwrap(), AdminKeyAdded::NameTaken);
    assert_eq!(index.admin_key(&one.sha256).await.unwrap().as_ref(), Some(&one));
    assert_eq!(index.admin_key(&key("one").sha256).await.unwrap(), None);
    assert!(index.remove_admin_key(&one.name).await.unwrap());
    assert!(!index.remove_admin_key(&one.name).await.unwrap());
    assert_eq!(index.admin_key(&one.sha256).await.unwrap(), None);
    assert_eq!(index.admin_key(&other.sha256).await.unwrap(), Some(other));
    assert_eq!(index.add_admin_key(&key("one")).await.unwrap(), AdminKeyAdded::Added);
}

pub(crate) async fn keys_are_listed_by_name_with_the_latest_use(index: &dyn Index) {
    let (b, a) = (key("b"), key("a"));
    for key in [&b, &a] {
        index.add_admin_key(key).await.unwrap();
    }
    for at in [5, 9, 7] {
        index.note_admin_key_use(&b, UnixMillis(at)).await.unwrap();
    }
    index.note_admin_key_use(&key("c"), UnixMillis(5)).await.unwrap();
    let listed = index.admin_keys().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|used| (&used.key, used.last_used_at)).collect();
    assert_eq!(shown, [(&a, None), (&b, Some(UnixMillis(9)))]);
    index.remove_admin_key(&b.name).await.unwrap();
    index.note_admin_key_use(&b, UnixMillis(10)).await.unwrap();
    index.add_admin_key(&key("b")).await.unwrap();
    let listed = index.admin_keys().await.unwrap();
    assert!(listed.iter().all(|used| used.last_used_at.is_none()), "{listed:?}");
}

pub(crate) async fn there_are_no_more_keys_than_are_allowed(index: &dyn Index) {
    for number in 0..MAX_ADMIN_KEYS {
        let key = key(&format!("key-{number}"));
        assert_eq!(index.add_admin_key(&key).await.unwrap(), AdminKeyAdded::Added);
        index.note_admin_key_use(&key, UnixMillis(1)).await.unwrap();
    }
    assert_eq!(index.add_admin_key(&key("one-more")).await.unwrap(), AdminKeyAdded::TooMany);
    assert!(index.remove_admin_key(&"key-7".parse().unwrap()).await.unwrap());
    assert_eq!(index.add_admin_key(&key("one-more")).await.unwrap(), AdminKeyAdded::Added);
}
