//! Broadcasts over the providers of phones and browsers, which servers of this run play.
//!
//! - `fcm`: the rate over FCM beside a raw client, with devices that are never answered, and memory
//! - `webpush`: the rate over Web Push beside the encryption alone
//! - `single`: a push to one phone during a broadcast
//! - `quota`: a project's quota over several workers

mod fcm;
mod quota;
mod single;
mod webpush;

use crate::{
    load::phone_provider::Plays,
    report::Row,
    setup::{Environment, Phones},
};

pub(crate) async fn run(env: &Environment) -> anyhow::Result<Vec<Row>> {
    let phones = Phones::start(env, Plays::Fcm, env.sizes.phones).await?;
    let mut rows = fcm::rates(env, &phones).await?;
    rows.push(fcm::silence(&phones).await?);
    rows.extend(single::run(env, &phones).await?);
    rows.extend(quota::run(&phones).await?);
    drop(phones);
    let browsers = Phones::start(env, Plays::WebPush, env.sizes.browsers).await?;
    rows.extend(webpush::run(env, &browsers).await?);
    Ok(rows)
}
