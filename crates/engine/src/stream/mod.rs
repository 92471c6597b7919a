//! Change streams: where one is in the log, what it shows, and the events that are ready for its next batch.
//!
//! A stream keeps a position and no snapshot. For each batch records of the log are read from there (module `listen`), made
//! into events here, and put through the stream's own stages.
//!
//! Invariant: the token that a batch ends with names a position; a stream that is resumed there shows every later event, once.

mod split;

use std::collections::VecDeque;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Writer, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::stage::{Match, Redacted, Stage};
use kilim_query::text;
use kilim_storage::LogPosition;

use crate::change_log::{Kind, Record, Token};
use crate::feed::{Entry, Subscription};

pub use crate::feed::Scope;

/// What `fullDocument` or `fullDocumentBeforeChange` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Image {
    /// Nothing beyond what the event itself has.
    #[default]
    Off,
    /// The document as it is when the event is read. Only of `fullDocument`.
    Lookup,
    WhenAvailable,
    Required,
}

impl Image {
    /// What the option says; none if it says nothing.
    fn name(self) -> Option<&'static str> {
        match self {
            Image::Off => None,
            Image::Lookup => Some("updateLookup"),
            Image::WhenAvailable => Some("whenAvailable"),
            Image::Required => Some("required"),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct StreamOptions {
    pub full_document: Image,
    pub before_change: Image,
    pub show_expanded_events: bool,
    /// `$changeStreamSplitLargeEvent`: events that are too large come in fragments.
    pub splits: bool,
}

/// An open change stream.
pub struct Stream {
    /// Its place in the feed, which knows whose events it shows.
    pub subscription: Subscription,
    options: StreamOptions,
    stages: Vec<Stage>,
    /// So many of the first stages look at no image that is asked for.
    before_images: usize,
    /// So many look at none but that of before the change.
    before_post_image: usize,
    /// The next record that it looks at.
    pub(crate) next: LogPosition,
    /// Of the event at `next`, so many fragments have been seen.
    fragments_seen: Option<u32>,
    ready: VecDeque<Event>,
    /// Where a client resumes that has seen all of `ready`.
    place: Place,
    /// The event that was given last, until its batch is full.
    last: Option<Event>,
    /// Where a client resumes that has seen what was given up to the end of a batch.
    given: Document,
    /// An invalidation has been made ready.
    ended: bool,
    /// Images of changes before this time of day are not shown, in milliseconds since 1970.
    pub(crate) images_from: i64,
}

/// An event that is ready to be given.
pub struct Event(Ready);

enum Ready {
    Own(Document),
    /// Many streams show it.
    Shared(Arc<Entry>),
}

impl Event {
    fn own(event: Document) -> Event {
        Event(Ready::Own(event))
    }

    pub fn document(&self) -> RawDocument<'_> {
        match &self.0 {
            Ready::Own(event) => event.as_raw(),
            Ready::Shared(entry) => entry.shown().map_or(RawDocument::empty(), Document::as_raw),
        }
    }
}

/// A place in the log that a token names.
enum Place {
    Token(Token),
    /// Behind an event that many streams show.
    Behind(Arc<Entry>),
}

impl Place {
    fn time(&self) -> u64 {
        match self {
            Place::Token(token) => token.position.time,
            Place::Behind(entry) => entry.position.time,
        }
    }

    fn token(&self) -> Document {
        match self {
            Place::Token(token) => token.to_document(),
            Place::Behind(entry) => {
                let token = entry.shown().and_then(|event| event.get("_id")).and_then(RawValue::as_document);
                token.map_or(Document::new(), RawDocument::to_document)
            }
        }
    }
}

/// Finds the document of an update as it is now.
pub(crate) type Lookup<'l> = dyn Fn(&Record<'_>) -> Result<Option<Document>> + 'l;

/// Which images an event is made with, of those that the stream shows.
#[derive(Clone, Copy)]
enum Images<'l> {
    None,
    Before,
    Both(&'l Lookup<'l>),
}

/// What most events have beside what their records have: a token, names, times.
const BESIDE_RECORD_BYTES: usize = 320;

/// The fields that images are shown in.
const IMAGES: [&str; 2] = ["fullDocument", "fullDocumentBeforeChange"];

impl Scope {
    /// Whether an event concerns it. A rename concerns its target as well.
    pub(crate) fn covers(&self, record: &Record<'_>) -> bool {
        match self {
            Scope::Deployment => true,
            Scope::Database(database) => record.database == database,
            Scope::Collection(namespace) => {
                let has_name =
                    record.database == namespace.database && record.collection == namespace.collection;
                (has_name && !record.is_of_view())
                    || (record.kind == Kind::Rename && record.renamed_to().as_ref() == Some(namespace))
            }
        }
    }

    /// Whether an event ends a stream of this scope.
    pub(crate) fn is_ended_by(&self, kind: Kind) -> bool {
        match self {
            Scope::Deployment => false,
            Scope::Database(_) => kind == Kind::DropDatabase,
            Scope::Collection(_) => matches!(kind, Kind::Drop | Kind::Rename),
        }
    }
}

impl Stream {
    /// A stream of events from a position on, which `token` names. Of the first event, fragments up to the one that the
    /// token names have been seen.
    pub(crate) fn new(
        subscription: Subscription,
        options: StreamOptions,
        stages: Vec<Stage>,
        next: LogPosition,
        token: Token,
    ) -> Stream {
        let given = token.to_document();
        let (stages, [before_images, before_post_image]) = divided(stages, &options);
        Stream {
            subscription,
            options,
            stages,
            before_images,
            before_post_image,
            next,
            fragments_seen: token.fragment.map(|fragment| fragment + 1),
            ready: VecDeque::new(),
            place: Place::Token(token),
            last: None,
            given,
            ended: false,
            images_from: i64::MIN,
        }
    }

    /// Whether it shows images that the log keeps.
    pub(crate) fn shows_images(&self) -> bool {
        let kept = |image: Image| matches!(image, Image::WhenAvailable | Image::Required);
        kept(self.options.full_document) || kept(self.options.before_change)
    }

    /// How it is explained: what it reads, then its stages.
    pub fn explain(&self) -> Vec<Document> {
        let mut shown = doc! {"scope": self.subscription.scope().to_string(), "startAfter": self.token()};
        for (name, image) in IMAGES.into_iter().zip([self.options.full_document, self.options.before_change])
        {
            if let Some(image) = image.name() {
                shown.push(name, image);
            }
        }
        shown.push("showExpandedEvents", self.options.show_expanded_events);
        // So many stages decide before a document is looked up.
        shown.push("stagesBeforeLookup", self.before_post_image as i32);
        let mut all = vec![doc! {"$changeStream": shown}];
        all.extend(self.stages.iter().flat_map(|stage| stage.behaviour().to_documents()));
        if self.options.splits {
            all.push(doc! {"$changeStreamSplitLargeEvent": {}});
        }
        all
    }

    /// The next event's size.
    pub fn next_bytes(&self) -> Option<usize> {
        self.ready.front().map(|event| event.document().as_bytes().len())
    }

    /// What the first `max` of the ready events take in an array.
    pub(crate) fn ready_bytes(&self, max: usize) -> usize {
        const ELEMENT_HEAD_BYTES: usize = 8;
        let bytes = |event: &Event| event.document().as_bytes().len() + ELEMENT_HEAD_BYTES;
        self.ready.iter().take(max).map(bytes).sum()
    }

    /// Gives the next event. A batch of them ends with [`Stream::note_given`].
    pub fn pop(&mut self) -> Option<&Event> {
        self.last = Some(self.ready.pop_front()?);
        self.last.as_ref()
    }

    /// Notes what was given, so that its token can be asked for.
    pub(crate) fn note_given(&mut self) {
        if let Some(last) = self.last.take()
            && let Some(RawValue::Document(token)) = last.document().get("_id")
        {
            self.given = token.to_document();
        }
    }

    pub(crate) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// Whether it has shown its last event.
    pub fn is_exhausted(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    pub fn is_invalidated(&self) -> bool {
        self.ended
    }

    /// Where a client resumes that has seen what was given.
    pub fn token(&self) -> Document {
        match self.ready.is_empty() {
            true => self.place.token(),
            false => self.given.clone(),
        }
    }

    /// Notes that there is nothing more for it up to a time.
    pub(crate) fn note_seen(&mut self, time: u64) {
        if !self.ended && self.fragments_seen.is_none() && time > self.place.time() {
            self.place = Place::Token(Token::mark(time));
        }
        if self.next.time <= time {
            self.next = LogPosition { time: time + 1, index: 0 };
        }
    }

    /// Takes a record of the log. Gives how many bytes became ready.
    pub(crate) fn take(&mut self, entry: &Arc<Entry>, lookup: &Lookup<'_>) -> Result<usize> {
        let (position, record) = (entry.position, Record::decode(&entry.bytes)?);
        self.next = LogPosition { time: position.time, index: position.index + 1 };
        let fragments_seen = self.fragments_seen.take();
        if self.ended || !self.subscription.scope().covers(&record) {
            return Ok(0);
        }
        let mut bytes = 0;
        if record.is_expanded() && !self.options.show_expanded_events {
            self.place = Place::Token(Token::of(&record, position, false));
        } else if self.is_plain() {
            let shown = entry.show(|| {
                self.whole_event(entry, &record, &Token::of(&record, position, false), Images::None)
            })?;
            bytes = shown.as_bytes().len();
            self.ready.push_back(Event(Ready::Shared(entry.clone())));
            self.place = Place::Behind(entry.clone());
        } else {
            let mut token = Token::of(&record, position, false);
            if let Some(event) = self.event(entry, &record, &token, lookup)? {
                check_token(event.as_raw(), &token)?;
                let made;
                (made, token) = match self.options.splits {
                    true => split::fragments(event, token, fragments_seen)?,
                    false => (vec![event], token),
                };
                bytes = made.iter().map(|event| event.as_bytes().len()).sum();
                self.ready.extend(made.into_iter().map(Event::own));
            }
            self.place = Place::Token(token);
        }
        self.end_by(position, &record)?;
        Ok(bytes)
    }

    /// Whether it shows events as any other stream without stages and options does.
    pub fn is_plain(&self) -> bool {
        let StreamOptions { full_document, before_change, show_expanded_events, splits } = self.options;
        self.stages.is_empty()
            && (full_document, before_change) == (Image::Off, Image::Off)
            && !(show_expanded_events || splits)
    }

    /// Ends the stream behind an event that ends streams of its scope, with an invalidation.
    pub(crate) fn end_by(&mut self, position: LogPosition, record: &Record<'_>) -> Result<()> {
        if !self.subscription.scope().is_ended_by(record.kind) {
            return Ok(());
        }
        let token = Token::of(record, position, true);
        let mut event = Document::new();
        event.push("_id", token.to_document());
        event.push("operationType", "invalidate");
        event.push("clusterTime", RawValue::Timestamp(Timestamp::from_bits(position.time)));
        event.push("wallTime", RawValue::DateTime(record.wall_millis));
        if let Some(event) = through(&self.stages, event)? {
            check_token(event.as_raw(), &token)?;
            self.ready.push_back(Event::own(event));
        }
        self.place = Place::Token(token);
        self.ended = true;
        Ok(())
    }

    /// The event of a record as the stages leave it. Those that look at no image decide before one is taken: as on MongoDB, an
    /// event that they drop may lack an image that is required.
    fn event(
        &self,
        entry: &Entry,
        record: &Record<'_>,
        token: &Token,
        lookup: &Lookup<'_>,
    ) -> Result<Option<Document>> {
        let is_fetched = |image: Image| matches!(image, Image::Lookup | Image::Required);
        let takes_post = record.kind == Kind::Update && is_fetched(self.options.full_document);
        let takes_pre = record.has_pre_image() && is_fetched(self.options.before_change);
        let mut decided = 0;
        for (count, images, is_asked) in [
            (self.before_images, Images::None, takes_pre || takes_post),
            (self.before_post_image, Images::Before, takes_post),
        ] {
            if !is_asked || count == decided {
                continue;
            }
            let event = self.whole_event(entry, record, token, images)?;
            if through(&self.stages[decided..count], event)?.is_none() {
                return Ok(None);
            }
            decided = count;
        }
        through(&self.stages[decided..], self.whole_event(entry, record, token, Images::Both(lookup))?)
    }

    /// The event of a record, in mongod's order of fields.
    fn whole_event(
        &self,
        entry: &Entry,
        record: &Record<'_>,
        token: &Token,
        images: Images<'_>,
    ) -> Result<Document> {
        let position = entry.position;
        let expanded = self.options.show_expanded_events;
        // Before the other image, whose lack is told second.
        let pre_image = match images {
            Images::Before | Images::Both(_) if record.has_pre_image() => self.pre_image(position, record)?,
            _ => None,
        };
        let mut writer = Writer::with_capacity(entry.bytes.len() + BESIDE_RECORD_BYTES);
        if let Some(session) = record.session() {
            session.iter().for_each(|(name, value)| writer.append(name, value));
        }
        let details = record.details();
        let detail = |name: &str| details.and_then(|details| details.get(name));
        if let Some(to) = detail("to") {
            writer.append("to", to);
        }
        writer.open_document("_id");
        token.append_to(&mut writer);
        writer.close();
        writer.append("operationType", RawValue::String(record.kind.name()));
        writer.append("clusterTime", RawValue::Timestamp(Timestamp::from_bits(position.time)));
        if let Some(uuid) = record.uuid.as_ref().filter(|_| expanded && !record.is_of_view()) {
            writer.append("collectionUUID", RawValue::Binary { subtype: 4, bytes: uuid });
        }
        writer.append("wallTime", RawValue::DateTime(record.wall_millis));
        match record.kind {
            Kind::Insert | Kind::Replace => {
                record
                    .document()
                    .into_iter()
                    .for_each(|it| writer.append("fullDocument", RawValue::Document(it)));
            }
            Kind::Update => {
                if let Images::Both(lookup) = images {
                    self.append_post_image(&mut writer, entry, record, lookup)?;
                }
            }
            _ => {}
        }
        writer.open_document("ns");
        writer.append("db", RawValue::String(record.database));
        if !record.collection.is_empty() {
            writer.append("coll", RawValue::String(record.collection));
        }
        writer.close();
        if let Some(id) = record.id() {
            writer.open_document("documentKey");
            writer.append("_id", id);
            writer.close();
        }
        if let Some(description) = record.description() {
            writer.open_document("updateDescription");
            let paths = description.get("disambiguatedPaths");
            for (name, value) in description.iter().filter(|(name, _)| *name != "disambiguatedPaths") {
                writer.append(name, value);
            }
            if expanded {
                let none = RawValue::Document(RawDocument::empty());
                writer.append("disambiguatedPaths", paths.unwrap_or(none));
            }
            writer.close();
        }
        if expanded {
            for name in ["operationDescription", "stateBeforeChange"] {
                detail(name).into_iter().for_each(|value| writer.append(name, value));
            }
        }
        if let Some(image) = pre_image {
            writer.append("fullDocumentBeforeChange", image);
        }
        if let Some(mark) = record.mark() {
            writer.append("kilim", RawValue::Document(mark));
        }
        Ok(writer.finish())
    }

    fn append_post_image(
        &self,
        writer: &mut Writer,
        entry: &Entry,
        record: &Record<'_>,
        lookup: &Lookup<'_>,
    ) -> Result<()> {
        let is_shown = |_: &RawDocument<'_>| record.wall_millis >= self.images_from;
        let found;
        let image = match self.options.full_document {
            Image::Off => return Ok(()),
            Image::Lookup => {
                found = entry.found(|| lookup(record))?;
                found.as_deref().map(Document::as_raw)
            }
            Image::WhenAvailable => record.after().filter(is_shown),
            Image::Required => Some(record.after().filter(is_shown).ok_or_else(|| {
                no_image("post-image for all update events, but the post-image", entry.position, record)
            })?),
        };
        writer.append("fullDocument", image.map_or(RawValue::Null, RawValue::Document));
        Ok(())
    }

    /// What is shown as the document before a change; none if that is not asked for.
    fn pre_image<'r>(&self, position: LogPosition, record: &Record<'r>) -> Result<Option<RawValue<'r>>> {
        let is_shown = |_: &RawDocument<'_>| record.wall_millis >= self.images_from;
        let image = match self.options.before_change {
            Image::Off | Image::Lookup => return Ok(None),
            Image::WhenAvailable => record.before().filter(is_shown),
            Image::Required => Some(record.before().filter(is_shown).ok_or_else(|| {
                no_image(
                    "pre-image for all update, delete and replace events, but the pre-image",
                    position,
                    record,
                )
            })?),
        };
        Ok(Some(image.map_or(RawValue::Null, RawValue::Document)))
    }
}

/// The stages, with a `$match` at their head divided by the images that it looks at. So many of them look at no image, and so
/// many at none but that of before the change.
fn divided(mut stages: Vec<Stage>, options: &StreamOptions) -> (Vec<Stage>, [usize; 2]) {
    let whole = match stages.first() {
        Some(Stage::Match(stage)) => stage.clone(),
        _ => return (stages, [0, 0]),
    };
    stages.remove(0);
    let apart = |stage: Option<Match>, image: Image, name: &str| match (stage, image) {
        (stage, Image::Off) => (stage, None),
        (Some(stage), _) => stage.apart_from(name),
        (None, _) => (None, None),
    };
    let [post_image, pre_image] = IMAGES;
    let (without_post, last) = apart(Some(whole), options.full_document, post_image);
    let (first, second) = apart(without_post, options.before_change, pre_image);
    let (of_first, of_second) = (usize::from(first.is_some()), usize::from(second.is_some()));
    let head = [first, second, last].into_iter().flatten().map(Stage::Match);
    (head.chain(stages).collect(), [of_first, of_first + of_second])
}

fn through(stages: &[Stage], mut event: Document) -> Result<Option<Document>> {
    for stage in stages {
        let env = Env::new(event.as_raw(), Bindings::none());
        let made = match stage {
            Stage::Match(stage) => match stage.filter.matches(event.as_raw())? {
                true => continue,
                false => return Ok(None),
            },
            Stage::Project(stage) => stage.apply(&env)?,
            Stage::AddFields(stage) => stage.apply(&env)?,
            Stage::ReplaceRoot(stage) => stage.apply(&env)?,
            Stage::Redact(stage) => match stage.apply(&env)? {
                Redacted::Kept => continue,
                Redacted::Pruned => return Ok(None),
                Redacted::Changed(document) => document,
            },
            _ => return Err(Error::bug("a stage that a change stream cannot run")),
        };
        event = made;
    }
    Ok(Some(event))
}

fn no_image(which: &str, position: LogPosition, record: &Record<'_>) -> Error {
    let Timestamp { seconds, increment } = Timestamp::from_bits(position.time);
    Error::user(
        ErrorCode::NoMatchingDocument,
        format!(
            "Change stream was configured to require a {which} was not found for event: {{operationType: \"{}\", ns: \
             {{db: \"{}\", coll: \"{}\"}}, clusterTime: Timestamp({seconds}, {increment})}}",
            record.kind.name(),
            record.database,
            record.collection
        ),
    )
}

/// Refuses an event whose token the stages have changed.
fn check_token(event: RawDocument<'_>, token: &Token) -> Result<()> {
    let found = event.get("_id");
    let expected = token.to_document();
    if found.and_then(RawValue::as_document).is_some_and(|found| found.as_bytes() == expected.as_bytes()) {
        return Ok(());
    }
    let mut shown = Document::new();
    found.into_iter().for_each(|found| shown.push("_id", found));
    let shown = if shown.is_empty() { "{}".to_owned() } else { text::document(shown.as_raw()) };
    let expected = text::document(doc! {"_id": expected}.as_raw());
    Err(Error::user(
        ErrorCode::ChangeStreamFatalError,
        format!(
            "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. \
             Modifying the _id field of an event makes it impossible to resume the stream from that point. Only \
             transformations that retain the unmodified _id field are allowed. Expected: {expected} but found: {shown}"
        ),
    ))
}
