//! A push as the fields of a form say it. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The lists of a targeting: their names in the request, which are the names of their fields.
pub(crate) const TARGETING: [(&str, &str, &str); 6] = [
    ("country", "Countries", "SG, MY"),
    ("language", "Languages", "zh, en-SG"),
    ("brand", "Brands", "Xiaomi"),
    ("model", "Models", "14 Pro"),
    ("os_version", "Android API levels", "33, 34"),
    ("app_version", "App versions", "2.1.0"),
];

/// Fields of a notification that hold text: name, label.
pub(crate) const NOTIFICATION: [(&str, &str); 7] = [
    ("title", "Title"),
    ("desc", "Text"),
    ("open_content", "Page or link"),
    ("icon", "Icon"),
    ("button_text", "Text of the button"),
    ("small_icon", "Small icon"),
    ("small_icon_color", "Colour of the small icon"),
];

/// Hints beside the content: name, label.
pub(crate) const HINTS: [(&str, &str); 5] = [
    ("collapse_key", "Collapse key"),
    ("channel_id", "Channel"),
    ("category", "Category"),
    ("image", "Image"),
    ("sound", "Sound"),
];

/// The fields of the form. A field that is missing is empty.
#[derive(Debug, Clone, Default)]
pub(crate) struct Draft(BTreeMap<String, String>);

impl Draft {
    /// Takes the fields of a form; of two with the same name the last.
    pub(crate) fn new(fields: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(fields.into_iter().collect())
    }

    /// The text of a field, without surrounding space.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |text| text.trim())
    }

    /// The fields that are not empty.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        fields.filter(|(_, text)| !text.is_empty())
    }

    /// Makes the request of the fields. What the fields leave open is left out, so that the check says
    /// what is missing.
    pub(crate) fn request(&self) -> Value {
        let mut body = Map::new();
        let is_data = self.field("content") == "data";
        body.insert("type".to_owned(), json!(if is_data { 2 } else { 1 }));
        body.insert("time_to_live".to_owned(), number(self.field_or("time_to_live", "3600")));
        body.insert("condition".to_owned(), self.condition());
        match is_data {
            true => body.insert("data".to_owned(), pairs(self.field("data"))),
            false => body.insert("notification".to_owned(), self.notification()),
        };
        for name in HINTS.map(|hint| hint.0).into_iter().chain(["priority"]) {
            insert(&mut body, name, self.field(name));
        }
        if !self.field("badge").is_empty() {
            body.insert("badge".to_owned(), number(self.field("badge")));
        }
        Value::Object(body)
    }

    fn field_or<'a>(&'a self, name: &str, otherwise: &'a str) -> &'a str {
        Some(self.field(name)).filter(|text| !text.is_empty()).unwrap_or(otherwise)
    }

    fn condition(&self) -> Value {
        match self.field("audience") {
            "clients" => {
                let mut condition = json!({ "type": 2 });
                for name in ["client_ids", "user_ids"] {
                    let ids = values(self.field(name));
                    if !ids.is_empty() {
                        condition[name] = json!(ids);
                    }
                }
                condition
            }
            "targeting" => {
                let lists =
                    TARGETING.into_iter().map(|(name, ..)| (name, values(self.field(name))));
                let lists: BTreeMap<_, _> = lists.filter(|(_, of)| !of.is_empty()).collect();
                let mut targeting = json!(lists);
                if let Some(filter) = self.filter() {
                    targeting["filter"] = filter;
                }
                self.sampled(json!({ "type": 1, "targeting": targeting }))
            }
            _ => self.sampled(json!({ "type": 0 })),
        }
    }

    /// The topics and the expression. An expression that is no JSON is left to the check, as a text.
    fn filter(&self) -> Option<Value> {
        let mut topics: Vec<_> = values(self.field("topics"))
            .into_iter()
            .map(|topic| json!({ "topic": topic }))
            .collect();
        let topics = match topics.len() {
            0 | 1 => topics.pop(),
            _ => Some(json!({ "any": topics })),
        };
        let text = self.field("filter");
        let filter =
            (!text.is_empty()).then(|| serde_json::from_str(text).unwrap_or_else(|_| json!(text)));
        match (topics, filter) {
            (Some(topics), Some(filter)) => Some(json!({ "all": [topics, filter] })),
            (topics, filter) => topics.or(filter),
        }
    }

    fn sampled(&self, mut condition: Value) -> Value {
        let (from, to) = (self.field("sample_from"), self.field("sample_to"));
        if !from.is_empty() || !to.is_empty() {
            let percent = |text: &str, otherwise: f64| match text {
                "" => json!(otherwise),
                text => text.parse::<f64>().map_or_else(|_| json!(text), |number| json!(number)),
            };
            condition["sample"] = json!({
                "from": percent(from, 0.0),
                "to": percent(to, 100.0),
                "seed": self.field("sample_seed"),
            });
        }
        condition
    }

    /// The texts in other languages: lines `LANGUAGE | TITLE | TEXT`. A line without a title or a text has the
    /// fallback's.
    fn localized(&self) -> Option<Value> {
        let lines = self.field("localized").lines().map(str::trim).filter(|line| !line.is_empty());
        let texts: Map<_, _> = lines
            .map(|line| {
                let mut parts = line.splitn(3, '|').map(str::trim);
                let tag = parts.next().unwrap_or_default().to_owned();
                let mut texts = Map::new();
                for name in ["title", "desc"] {
                    insert(&mut texts, name, parts.next().unwrap_or_default());
                }
                (tag, Value::Object(texts))
            })
            .collect();
        (!texts.is_empty()).then_some(Value::Object(texts))
    }

    fn notification(&self) -> Value {
        let mut fields = Map::new();
        for (name, _) in NOTIFICATION {
            insert(&mut fields, name, self.field(name));
        }
        for name in ["notification_type", "open_type"] {
            if !self.field(name).is_empty() {
                fields.insert(name.to_owned(), number(self.field(name)));
            }
        }
        if let Some(texts) = self.localized() {
            fields.insert("localized".to_owned(), texts);
        }
        Value::Object(fields)
    }
}

fn insert(fields: &mut Map<String, Value>, name: &str, text: &str) {
    if !text.is_empty() {
        fields.insert(name.to_owned(), json!(text));
    }
}

/// A number if the text is one; otherwise the text, which the check refuses by its field.
fn number(text: &str) -> Value {
    text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number))
}

/// The values between commas and line ends.
fn values(text: &str) -> Vec<&str> {
    text.split([',', '\n']).map(str::trim).filter(|value| !value.is_empty()).collect()
}

/// The pairs of lines `KEY=VALUE`. A line without `=` is a key with an empty value.
fn pairs(text: &str) -> Value {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let pairs = lines.map(|line| line.split_once('=').unwrap_or((line, "")));
    pairs.map(|(key, value)| (key.trim().to_owned(), json!(value))).collect::<Map<_, _>>().into()
}

/// Writes the `curl` line of a push. Quoted for a POSIX shell.
pub(crate) fn curl(server: &str, app: &str, body: &Value) -> String {
    let body = body.to_string().replace('\'', r"'\''");
    format!(
        "curl -sS {server}/v1/message/push/{app} \\\n  -H \"Authorization: $PUSH_SECRET\" \\\n  \
         -H 'Content-Type: application/json' \\\n  -d '{body}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&str, &str)]) -> Value {
        let fields = fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Draft::new(fields).request()
    }

    #[test]
    fn fields_make_the_request_of_each_audience_and_content() {
        assert_eq!(
            request(&[("title", " Hi "), ("desc", ""), ("badge", "3"), ("priority", "high")]),
            json!({ "type": 1, "time_to_live": 3600, "condition": { "type": 0 }, "badge": 3,
                    "priority": "high", "notification": { "title": "Hi" } })
        );
        assert_eq!(
            request(&[("audience", "targeting"), ("country", "SG, MY\nCN"), ("title", "Hi")])["condition"],
            json!({ "type": 1, "targeting": { "country": ["SG", "MY", "CN"] } })
        );
        assert_eq!(
            request(&[
                ("audience", "clients"),
                ("client_ids", "a,b"),
                ("content", "data"),
                ("data", "k=v=w\nflag"),
                ("time_to_live", "60")
            ]),
            json!({ "type": 2, "time_to_live": 60, "data": { "k": "v=w", "flag": "" },
                    "condition": { "type": 2, "client_ids": ["a", "b"] } })
        );
    }

    #[test]
    fn fields_make_an_audience_of_the_apps_own() {
        assert_eq!(
            request(&[
                ("audience", "targeting"),
                ("topics", "f1, f2"),
                ("filter", r#"{"attribute":"plan","in":["pro"]}"#),
                ("sample_to", "10"),
                ("sample_seed", "spring"),
            ])["condition"],
            json!({ "type": 1, "sample": { "from": 0.0, "to": 10.0, "seed": "spring" }, "targeting": {
                "filter": { "all": [
                    { "any": [{ "topic": "f1" }, { "topic": "f2" }] },
                    { "attribute": "plan", "in": ["pro"] },
                ] } } })
        );
        assert_eq!(
            request(&[("audience", "clients"), ("user_ids", "u1, u2")])["condition"],
            json!({ "type": 2, "user_ids": ["u1", "u2"] })
        );
        assert_eq!(
            request(&[("localized", "de | Hallo | Welt\nfr | Salut")])["notification"]["localized"],
            json!({ "de": { "title": "Hallo", "desc": "Welt" }, "fr": { "title": "Salut" } })
        );
    }

    #[test]
    fn a_field_that_is_no_number_is_left_to_the_check() {
        assert_eq!(request(&[("time_to_live", "soon")])["time_to_live"], "soon");
    }

    #[test]
    fn the_curl_line_survives_quotes() {
        let line = curl("http://h:1", "a", &json!({ "t": "it's" }));
        assert!(line.ends_with(r#"-d '{"t":"it'\''s"}'"#), "{line}");
    }
}
