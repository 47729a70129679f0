//! Paces: one short key an app, which expires when its value has no effect any more.

use async_trait::async_trait;
use push_model::{
    app::AppKey,
    pace::{Acquire, BURST, Grant, IDLE_EXPIRY, MAX_AHEAD, TheoreticalArrival, micros},
};
use push_store::{IndexError, redis::connection::reply};

use super::RedisIndex;
use crate::Pacing;

#[async_trait]
impl Pacing for RedisIndex {
    async fn acquire_pace(&self, app: &AppKey, request: &Acquire) -> Result<Grant, IndexError> {
        let mut call = self.scripts.acquire_pace.call(&[&self.keys.theoretical_arrival(app)]);
        call.arg(request.now_micros()).arg(request.cost_micros()).arg(request.ahead_micros());
        call.arg(micros(BURST)).arg(micros(MAX_AHEAD));
        call.arg(micros(IDLE_EXPIRY) / 1000);
        let mut answer = reply::list(call.run(&self.quick).await?)?.into_iter();
        let mut number = || reply::number(answer.next().unwrap_or(redis::Value::Nil));
        match (number()?, number()?) {
            (Some(granted), Some(arrival)) => {
                Ok(request.answer(granted == 1, TheoreticalArrival(arrival)))
            }
            _ => Err(IndexError::Corrupt("an app's pace".to_owned())),
        }
    }
}
