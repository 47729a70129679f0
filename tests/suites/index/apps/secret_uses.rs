//! The last uses of an app's secrets.

use std::collections::BTreeMap;

use push_index::Index;
use push_model::{app::AppKey, time::UnixMillis};

use crate::index::support::{app, create};

fn uses(of: &[(&str, u64)]) -> BTreeMap<String, UnixMillis> {
    of.iter().map(|(name, at)| ((*name).to_owned(), UnixMillis(*at))).collect()
}

async fn save(index: &dyn Index, app: &AppKey, of: &[(&str, u64)]) {
    let uses: Vec<_> =
        of.iter().map(|(name, at)| (*name, (*at > 0).then_some(UnixMillis(*at)))).collect();
    index.save_secret_uses(app, &uses).await.unwrap();
}

pub(crate) async fn the_latest_use_of_each_secret_is_kept(index: &dyn Index) {
    let key = create(index).await;
    assert_eq!(index.secret_uses(&key).await.unwrap(), BTreeMap::new());
    save(index, &key, &[("default", 5000), ("phones", 0)]).await;
    assert_eq!(index.secret_uses(&key).await.unwrap(), uses(&[("default", 5000)]));
    // Of two programs that know of different uses, the later ones count.
    save(index, &key, &[("default", 4000), ("phones", 9_007_199_254_740_991)]).await;
    let latest = uses(&[("default", 5000), ("phones", 9_007_199_254_740_991)]);
    assert_eq!(index.secret_uses(&key).await.unwrap(), latest);
    // A program that does not know of a use takes none back.
    save(index, &key, &[("default", 0), ("phones", 0)]).await;
    assert_eq!(index.secret_uses(&key).await.unwrap(), latest);
}

pub(crate) async fn the_uses_of_secrets_that_are_gone_are_forgotten(index: &dyn Index) {
    let key = create(index).await;
    const HOUR: u64 = 3_600_000;
    save(index, &key, &[("default", 5), ("phones", 6), ("reports", 7)]).await;
    save(index, &key, &[("default", HOUR + 7), ("reports", 7)]).await;
    let left = uses(&[("default", HOUR + 7), ("reports", 7)]);
    assert_eq!(index.secret_uses(&key).await.unwrap(), left);
}

pub(crate) async fn a_program_with_an_old_record_forgets_no_use_of_a_new_secret(index: &dyn Index) {
    let key = create(index).await;
    save(index, &key, &[("default", 5000), ("phones", 6000)]).await;
    save(index, &key, &[("default", 7000)]).await;
    let both = uses(&[("default", 7000), ("phones", 6000)]);
    assert_eq!(index.secret_uses(&key).await.unwrap(), both);
}

pub(crate) async fn the_uses_of_a_removed_app_are_gone_and_none_is_saved_later(index: &dyn Index) {
    let key = create(index).await;
    save(index, &key, &[("default", 5)]).await;
    assert!(index.remove_app(&app()).await.unwrap());
    assert_eq!(index.secret_uses(&key).await.unwrap(), BTreeMap::new());
    save(index, &key, &[("default", 9)]).await;
    assert_eq!(index.secret_uses(&key).await.unwrap(), BTreeMap::new());
    let next = create(index).await;
    assert_eq!(index.secret_uses(&next).await.unwrap(), BTreeMap::new());
}
