//! The query of a request for a list: `limit`, `cursor` and what the list has besides.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::rejection::Rejection;

/// The most elements of a page.
pub(super) const MOST: usize = 200;

/// The elements of a page if the request does not say.
const USUAL: usize = 50;

/// The parts of a query that are known, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListQuery<'a> {
    pub(super) limit: usize,
    pub(super) cursor: Option<Cow<'a, str>>,
    pub(super) state: Option<Cow<'a, str>>,
}

impl<'a> ListQuery<'a> {
    /// Reads a query. A parameter that is unknown or comes twice is refused: the answer would be another
    /// than the one that was meant.
    pub(super) fn parse(query: &'a str) -> Result<Self, Rejection> {
        let (mut limit, mut cursor, mut state) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "limit" => &mut limit,
                "cursor" => &mut cursor,
                "state" => &mut state,
                _ => {
                    let why = "the query has a parameter other than limit, cursor and state";
                    return Err(Rejection::Illegal(why.into()));
                }
            };
            let value = percent_decode_str(value).decode_utf8_lossy();
            if place.replace(value).is_some() {
                return Err(Rejection::Illegal(format!("the query has {name} twice")));
            }
        }
        let limit = match limit {
            None => USUAL,
            Some(text) => {
                number(&text).filter(|limit| (1..=MOST).contains(limit)).ok_or_else(|| {
                    Rejection::Illegal(format!("limit must be a whole number from 1 to {MOST}"))
                })?
            }
        };
        Ok(Self { limit, cursor, state })
    }
}

fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_or_refused() {
        let query = |text| ListQuery::parse(text);
        let usual = ListQuery { limit: 50, cursor: None, state: None };
        assert_eq!((query(""), query("&")), (Ok(usual), Ok(ListQuery::parse("").unwrap())));
        let all = query("limit=200&cursor=a%2Db&state=done").unwrap();
        assert_eq!((all.limit, all.cursor.as_deref()), (200, Some("a-b")));
        assert_eq!(all.state.as_deref(), Some("done"));
        for wrong in ["limit=0", "limit=201", "limit=", "limit=-1", "limit=+1", "limit=1&limit=1"] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
        for wrong in ["stat=done", "limit", "cursor=a&cursor=b", "limit=99999999999999999999"] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
    }
}
