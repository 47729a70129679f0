//! Former language tags, subtags and regions, and what stands for them now: every record with a
//! `Preferred-Value` of the IANA Language Subtag Registry of 2025-08-25
//! (<https://www.iana.org/assignments/language-subtag-registry>).
//!
//! All in lower case, sorted, as "former preferred". To renew the tables, take every record of a newer
//! registry that has a `Preferred-Value`, by its `Type`.

/// Records of the type `language`.
pub(super) const LANGUAGES: &[&str] = &[
    "aam aas", "adp dz", "ajp apc", "ajt aeb", "asd snz", "aue ktz", "ayx nun", "bgm bcg",
    "bic bir", "bjd drl", "blg iba", "ccq rki", "cjr mom", "cka cmr", "cmk xch", "coy pij",
    "cqu quh", "dek sqm", "dit dif", "drh khk", "drr kzk", "drw prs", "gav dev", "gfx vaj",
    "ggn gvr", "gli kzk", "gti nyc", "guv duz", "hrr jal", "ibi opa", "ilw gal", "in id", "iw he",
    "jeg oyb", "ji yi", "jw jv", "kgc tdf", "kgh kml", "kgm plu", "koj kwv", "krm bmf", "ktr dtp",
    "kvs gdj", "kwq yam", "kxe tvd", "kxl kru", "kzj dtp", "kzt dtp", "lak ksp", "lii raq",
    "llo ngt", "lmm rmx", "meg cir", "mo ro", "mst mry", "mwj vaj", "myd aog", "myt mry",
    "nad xny", "ncp kdz", "nns nbr", "nnx ngv", "nom cbr", "nte eko", "nts pij", "nxu bpp",
    "oun vaj", "pat kxr", "pcr adx", "pmc huw", "pmk crr", "pmu phr", "ppa bfy", "ppr lcq",
    "prp gu", "pry prt", "puz pub", "sca hle", "skk oyb", "smd kmb", "snb iba", "szd umi",
    "tdu dtp", "thc tpo", "thw ola", "thx oyb", "tie ras", "tkk twm", "tlw weo", "tmk tdg",
    "tmp tyj", "tne kak", "tnf prs", "tpw tpn", "tsf taj", "uok ema", "xba cax", "xia acn",
    "xkh waw", "xrq dmw", "xss zko", "ybd rki", "yma lrr", "ymt mtm", "yos zom", "yuu yug",
    "zir scv", "zkb kjh",
];

/// Records of the type `region`. They hold for a device's country as well.
pub(super) const REGIONS: &[&str] = &["bu mm", "dd de", "fx fr", "tp tl", "yd ye", "zr cd"];

/// Records of the type `variant`.
pub(super) const VARIANTS: &[&str] = &["heploc alalc97"];

/// Records of the types `grandfathered` and `redundant`, without those that [`EXTLANGS`] covers: each
/// stands for the beginning of a tag.
pub(super) const TAGS: &[&str] = &[
    "art-lojban jbo",
    "en-gb-oed en-gb-oxendict",
    "i-ami ami",
    "i-bnn bnn",
    "i-hak hak",
    "i-klingon tlh",
    "i-lux lb",
    "i-navajo nv",
    "i-pwn pwn",
    "i-tao tao",
    "i-tay tay",
    "i-tsu tsu",
    "no-bok nb",
    "no-nyn nn",
    "sgn-be-fr sfb",
    "sgn-be-nl vgt",
    "sgn-br bzs",
    "sgn-ch-de sgg",
    "sgn-co csn",
    "sgn-de gsg",
    "sgn-dk dsl",
    "sgn-es ssp",
    "sgn-fr fsl",
    "sgn-gb bfi",
    "sgn-gr gss",
    "sgn-ie isg",
    "sgn-it ise",
    "sgn-jp jsl",
    "sgn-mx mfs",
    "sgn-ni ncs",
    "sgn-nl dse",
    "sgn-no nsl",
    "sgn-pt psr",
    "sgn-se swl",
    "sgn-us ase",
    "sgn-za sfs",
    "zh-guoyu cmn",
    "zh-hakka hak",
    "zh-min-nan nan",
    "zh-xiang hsn",
];

/// Records of the type `extlang` by the language that they follow. Each is a language by itself, which
/// is its preferred value: `zh-yue` is `yue`.
pub(super) const EXTLANGS: &[(&str, &[&str])] = &[
    (
        "ar",
        &[
            "aao", "abh", "abv", "acm", "acq", "acw", "acx", "acy", "adf", "aeb", "aec", "afb",
            "ajp", "apc", "apd", "arb", "arq", "ars", "ary", "arz", "auz", "avl", "ayh", "ayl",
            "ayn", "ayp", "bbz", "pga", "shu", "ssh",
        ],
    ),
    ("kok", &["gom", "knn"]),
    ("lv", &["ltg", "lvs"]),
    (
        "ms",
        &[
            "bjn", "btj", "bve", "bvu", "coa", "dup", "hji", "jak", "jax", "kvb", "kvr", "kxd",
            "lce", "lcf", "liw", "max", "meo", "mfa", "mfb", "min", "mqg", "msi", "mui", "orn",
            "ors", "pel", "pse", "tmw", "urk", "vkk", "vkt", "xmm", "zlm", "zmi", "zsm",
        ],
    ),
    (
        "sgn",
        &[
            "ads", "aed", "aen", "afg", "ajs", "ase", "asf", "asp", "asq", "asw", "bfi", "bfk",
            "bog", "bqn", "bqy", "bvl", "bzs", "cds", "csc", "csd", "cse", "csf", "csg", "csl",
            "csn", "csq", "csr", "csx", "doq", "dse", "dsl", "dsz", "ecs", "ehs", "esl", "esn",
            "eso", "eth", "fcs", "fse", "fsl", "fss", "gds", "gse", "gsg", "gsm", "gss", "gus",
            "hab", "haf", "hds", "hks", "hos", "hps", "hsh", "hsl", "icl", "iks", "ils", "inl",
            "ins", "ise", "isg", "isr", "jcs", "jhs", "jks", "jls", "jos", "jsl", "jus", "kgi",
            "kvk", "lbs", "lgs", "lls", "lsb", "lsc", "lsg", "lsl", "lsn", "lso", "lsp", "lst",
            "lsv", "lsw", "lsy", "lws", "mdl", "mfs", "mre", "msd", "msr", "mzc", "mzg", "mzy",
            "nbs", "ncs", "nsi", "nsl", "nsp", "nsr", "nzs", "okl", "pgz", "pks", "prl", "prz",
            "psc", "psd", "psg", "psl", "pso", "psp", "psr", "pys", "rib", "rms", "rnb", "rsi",
            "rsl", "rsm", "rsn", "sdl", "sfb", "sfs", "sgg", "sgx", "slf", "sls", "sqk", "sqs",
            "sqx", "ssp", "ssr", "svk", "swl", "syy", "szs", "tse", "tsm", "tsq", "tss", "tsy",
            "tza", "ugn", "ugy", "ukl", "uks", "vgt", "vsi", "vsl", "vsv", "wbs", "xki", "xml",
            "xms", "yds", "ygs", "yhs", "ysl", "ysm", "zib", "zsl",
        ],
    ),
    ("sw", &["swc", "swh"]),
    ("uz", &["uzn", "uzs"]),
    (
        "zh",
        &[
            "cdo", "cjy", "cmn", "cnp", "cpx", "csp", "czh", "czo", "gan", "hak", "hnm", "hsn",
            "luh", "lzh", "mnp", "nan", "sjc", "wuu", "yue",
        ],
    ),
];

/// Returns what a table has for a former value.
pub(super) fn find(table: &'static [&'static str], former: &str) -> Option<&'static str> {
    let parts = |entry: &'static str| entry.split_once(' ').unwrap_or((entry, entry));
    let found = table.binary_search_by(|entry| parts(entry).0.cmp(former)).ok()?;
    Some(parts(table[found]).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_sorted_and_no_preferred_value_is_a_former_one() {
        for table in [LANGUAGES, REGIONS, VARIANTS, TAGS] {
            for entry in table {
                let (former, preferred) = entry.split_once(' ').unwrap();
                assert_eq!(find(table, former), Some(preferred));
                assert_eq!(find(table, preferred), None, "{entry}");
            }
        }
        assert!(EXTLANGS.iter().all(|(_, list)| list.is_sorted()));
    }
}
