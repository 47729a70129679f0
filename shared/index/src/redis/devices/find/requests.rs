//! Cuts a list of clients into requests.

/// The most clients of one request: a fraction of a megabyte, and of a millisecond of Redis.
pub(in crate::redis::devices) const REQUEST_CLIENTS: usize = 256;

/// Cuts a list that is sorted by shard into requests, each for one shard or for any number of
/// shards. In a cluster the keys of a request must be of one hash tag, so of one shard.
pub(in crate::redis::devices) fn requests<T>(
    sorted: &[T],
    shard_of: impl Fn(&T) -> u32,
    one_shard: bool,
) -> Vec<&[T]> {
    if one_shard {
        let shards = sorted.chunk_by(move |a, b| shard_of(a) == shard_of(b));
        shards.flat_map(|shard| shard.chunks(REQUEST_CLIENTS)).collect()
    } else {
        sorted.chunks(REQUEST_CLIENTS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::layout::ClientHash;

    #[test]
    fn a_list_is_cut_into_requests_that_name_each_client_once() {
        let clients = (0..1000).map(|n| format!("c{n}").parse().unwrap());
        let mut wanted: Vec<(usize, ClientHash)> =
            (0..).zip(clients.map(|id| ClientHash::of(&id))).collect();
        wanted.sort_by_key(|(_, hash)| hash.shard);
        for (one_shard, expected) in [(false, 4), (true, 64)] {
            let requests = requests(&wanted, |(_, hash)| hash.shard, one_shard);
            assert_eq!(requests.len(), expected);
            for request in &requests {
                let shards = request.chunk_by(|(_, a), (_, b)| a.shard == b.shard).count();
                assert!(!one_shard || shards == 1);
            }
            assert_eq!(requests.concat(), wanted);
        }
    }
}
