//! Paces: one short key an app, which expires by itself when it says no more than its absence.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    pace::{FORGOTTEN_AFTER, FURTHEST, PaidUntil, SAVED_UP, Take, Taken, micros},
};

use super::{RedisIndex, reply};
use crate::{IndexError, Pacing};

#[async_trait]
impl Pacing for RedisIndex {
    async fn take_pace(&self, app: &AppKey, take: &Take) -> Result<Taken, IndexError> {
        let mut call = self.scripts.take_pace.call(&[&self.keys.paid_until(app)]);
        call.arg(take.now_micros()).arg(take.cost_micros()).arg(take.ahead_micros());
        call.arg(micros(SAVED_UP)).arg(micros(FURTHEST));
        call.arg(micros(FORGOTTEN_AFTER) / 1000);
        let mut answer = reply::list(call.run(&self.quick).await?)?.into_iter();
        let mut number = || reply::number(answer.next().unwrap_or(redis::Value::Nil));
        match (number()?, number()?) {
            (Some(granted), Some(paid)) => Ok(take.answer(granted == 1, PaidUntil(paid))),
            _ => Err(IndexError::Corrupt("an app's pace".to_owned())),
        }
    }
}
