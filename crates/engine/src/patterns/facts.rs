//! What a pattern works on: its collections, the indexes it wants, the fields it keeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, Path, RawDocument, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::declaration::WhileBuilding;
use kilim_patterns::{Kind, Role, Rollup, Versions, WantedIndex, lies_within, overlap};
use kilim_query::expression::Dependencies;

use super::{Pattern, PatternState, Registry};
use crate::index::{Index, IndexSpec, KeyPart, PATTERN_PREFIX};
use crate::namespace::Namespace;
use crate::records::is_needed;

/// How much of a pattern is pending.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PendingSources {
    /// Sources whose changes are not written to all of their targets yet.
    pub count: u64,
    /// For how long the oldest of them has been pending.
    pub age_millis: u64,
}

impl Pattern {
    /// Whether documents expire by a field that is not stored where the index looks for it.
    pub(crate) fn hides_expiry(&self, spec: &IndexSpec) -> bool {
        spec.expire_after_seconds.is_some()
            && spec.key.iter().any(|part| self.kind().sorts_by(part.path.as_str()).is_some())
    }

    pub(crate) fn hidden_expiry(&self, index: &str) -> Error {
        Error::user(
            ErrorCode::PatternFieldConflict,
            format!(
                "documents of {} would expire by the index '{index}', which is over a field that {} '{}' stores in another form: \
                 drop the index, or let them expire by another field",
                self.target, self.declaration.kind_name, self.declaration.name
            ),
        )
    }
}

impl Registry {
    /// Refuses a unique index over what a pattern maintains: maintenance cannot fail for a user's write.
    pub(crate) fn check_new_indexes(&self, namespace: &Namespace, specs: &[IndexSpec]) -> Result<()> {
        if namespace.holds_definitions() {
            return Err(refuse_change(namespace));
        }
        let is_paged = |of: &Namespace| {
            let mut own = self.of(&of.database).iter().filter(|one| one.target == *of);
            own.any(|one| one.kind().paging().is_some() && one.state != PatternState::Unverified)
        };
        if namespace.of_array().is_some_and(|of| is_paged(&of)) {
            return Err(owned_pages(namespace));
        }
        for pattern in self.of(&namespace.database).iter().filter(|one| one.target == *namespace) {
            for spec in specs.iter().filter(|_| pattern.state != PatternState::Unverified) {
                check_over_elements(pattern, spec)?;
            }
            if let Some(spec) = specs.iter().find(|spec| pattern.hides_expiry(spec)) {
                return Err(pattern.hidden_expiry(&spec.name));
            }
            let paths = pattern.declaration.maintained_paths();
            let maintained = |path: &str| paths.iter().any(|own| overlap(own, path));
            let over =
                |spec: &&IndexSpec| spec.unique && spec.key.iter().any(|part| maintained(part.path.as_str()));
            if let Some(spec) = specs.iter().find(over) {
                return Err(Error::user(
                    ErrorCode::PatternFieldConflict,
                    format!(
                        "the index '{}' of {namespace} cannot be unique: it is over a path that {} '{}' maintains, \
                         and maintenance may not fail. Leave out 'unique', or index other fields",
                        spec.name, pattern.declaration.kind_name, pattern.declaration.name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A document without what patterns maintain in it; none where there is nothing of it. Validators ask for it: a
    /// pattern may not make a write fail that was possible before, so what it adds does not count against the user.
    pub(crate) fn without_maintained(
        &self,
        namespace: &Namespace,
        document: RawDocument<'_>,
    ) -> Result<Option<Document>> {
        bare_of(self.of(&namespace.database), namespace, document)
    }

    /// Refuses a collection with a collation where a pattern is at work.
    pub(crate) fn check_no_patterns(&self, namespace: &Namespace) -> Result<()> {
        match self.of(&namespace.database).iter().any(|one| one.concerns(namespace)) {
            true => Err(has_collation(namespace)),
            false => Ok(()),
        }
    }

    /// Refuses to take the name under which a version is to be shown whose definition was restored and is not in force yet: an
    /// old client that writes there means the versioned collection.
    pub(crate) fn check_no_restored_alias(&self, namespace: &Namespace) -> Result<()> {
        let restored = |one: &&Arc<Pattern>| {
            one.state == PatternState::Unverified && one.kind().version_step().is_some()
        };
        for pattern in self.of(&namespace.database).iter().filter(restored) {
            let own = self.of(&namespace.database).iter().filter(|one| one.target == pattern.target);
            let all: Vec<_> = own.filter_map(|one| one.kind().version_step().cloned()).collect();
            let alone = pattern.kind().version_step().cloned().into_iter().collect();
            let Ok(versions) = Versions::of(all).or_else(|_| Versions::of(alone)) else { continue };
            let aliases = versions.aliases(&pattern.target.collection);
            if let Some((version, _)) = aliases.iter().find(|(_, name)| **name == *namespace.collection) {
                return Err(pattern.refusal(
                    ErrorCode::VersionInUse,
                    None,
                    format!(
                        "{namespace} is to be version {version} of {}, but schemaVersion '{}' is unverified: repairPattern puts it in \
                         force, dropPattern gives it up",
                        pattern.target, pattern.declaration.name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The indexes that a collection needs from its first document on, where patterns outlived the one before it.
    pub(crate) fn indexes_for_patterns(&self, namespace: &Namespace) -> Vec<IndexSpec> {
        let mut specs: Vec<IndexSpec> = Vec::new();
        for pattern in self.of(&namespace.database).iter().filter(|one| one.concerns(namespace)) {
            if let Some((place, field)) = pattern.found_by()
                && place == namespace
                && field != "_id"
            {
                let mut key = Document::new();
                key.push(field, 1);
                specs.push(IndexSpec { unique: true, ..IndexSpec::over(format!("{field}_1"), key) });
            }
            if !pattern.declaration.options.create_indexes {
                continue;
            }
            let own = pattern.wanted_indexes().into_iter().filter(|(place, _)| *place == namespace);
            for (number, (_, wanted)) in own.enumerate() {
                let name = format!("{PATTERN_PREFIX}{}_{}", pattern.declaration.name, number + 1);
                specs.extend(spec_of(&name, &wanted));
            }
        }
        // Two patterns may want the same.
        let mut seen: Vec<Vec<u8>> = Vec::new();
        specs.retain(|spec| {
            let wanted = without_name(spec).into_bytes();
            let new = !seen.contains(&wanted);
            seen.push(wanted);
            new
        });
        specs
    }
}

/// A document without what some patterns maintain in it, or did before they were paused; none where there is nothing of it.
pub(crate) fn bare_of(
    patterns: &[Arc<Pattern>],
    namespace: &Namespace,
    document: RawDocument<'_>,
) -> Result<Option<Document>> {
    let mut bare: Option<Document> = None;
    let in_force = |one: &&Arc<Pattern>| one.target == *namespace && one.state != PatternState::Unverified;
    for pattern in patterns.iter().filter(in_force) {
        let current = bare.as_ref().map_or(document, Document::as_raw);
        bare = pattern.kind().stripped(current)?.or(bare);
    }
    Ok(bare)
}

impl Pattern {
    /// What it does.
    pub fn kind(&self) -> &dyn Kind {
        &*self.declaration.kind
    }

    /// The groups that it keeps, for code that has learned from an effect that it keeps some.
    pub(crate) fn rollup(&self) -> Result<&Rollup> {
        self.kind().rollup().ok_or_else(|| Error::bug("a pattern without groups changes one"))
    }

    fn collection_in(&self, role: Role) -> Option<&Namespace> {
        match role {
            Role::Target => Some(&self.target),
            Role::Source => self.source.as_ref(),
        }
    }

    /// The collection in which it finds documents by a unique field, and that field.
    pub(crate) fn found_by(&self) -> Option<(&Namespace, &str)> {
        let (role, field) = self.kind().found_by()?;
        Some((self.collection_in(role)?, field))
    }

    /// Like `found_by`, if these documents are its sources.
    pub(crate) fn sources_found_by(&self) -> Option<(&Namespace, &str)> {
        self.found_by().filter(|_| matches!(self.kind().found_by(), Some((Role::Source, _))))
    }

    /// The indexes that it wants, and of which collection.
    pub(crate) fn wanted_indexes(&self) -> Vec<(&Namespace, WantedIndex)> {
        let placed = |wanted: WantedIndex| Some((self.collection_in(wanted.role)?, wanted));
        self.kind().indexes().into_iter().filter_map(placed).collect()
    }

    /// Whether an index was made for patterns, and this one works with it.
    pub(crate) fn works_with(&self, namespace: &Namespace, index: &Index) -> bool {
        index.spec.is_made_for_patterns()
            && self
                .wanted_indexes()
                .iter()
                .any(|(place, wanted)| *place == namespace && serves(index, wanted))
    }

    /// The collections that it writes to and reads from.
    pub fn collections(&self) -> Vec<&Namespace> {
        [Some(&self.target), self.source.as_ref()].into_iter().flatten().collect()
    }

    /// The collection whose documents are visited to fill it.
    pub fn walked(&self) -> &Namespace {
        match (&self.source, self.inserts_parents()) {
            (Some(source), true) => source,
            _ => &self.target,
        }
    }

    /// Whether a document of a rollup collection has nothing but what this pattern and others give it.
    pub(crate) fn made_alone(&self, document: RawDocument<'_>, patterns: &[Arc<Pattern>]) -> bool {
        let mut own: Vec<Box<str>> = vec!["_id".into()];
        own.extend(self.kind().key_path().map(Into::into));
        for Pattern { declaration, .. } in
            patterns.iter().map(|one| &**one).filter(|one| one.target == self.target)
        {
            own.extend(declaration.maintained_paths());
            own.extend(declaration.options.touch.iter().map(|path| path.as_str().into()));
        }
        document.iter().all(|(name, _)| own.iter().any(|path| lies_within(path, name)))
    }

    /// Whether groups have documents of their own, made and removed with them.
    pub fn inserts_parents(&self) -> bool {
        self.kind().rollup().is_some_and(Rollup::inserts_parents)
    }

    /// Whether readers are kept from what it has not filled yet.
    pub(crate) fn withholds(&self) -> bool {
        self.state.is_unfinished() && self.declaration.options.while_building == WhileBuilding::Fail
    }

    /// The pattern in a few words.
    pub fn summary(&self) -> Document {
        doc! {
            "name": &*self.declaration.name,
            "kind": self.declaration.kind_name,
            "state": self.shown_state(),
            "fields": self.fields(),
        }
    }

    pub(crate) fn fields(&self) -> Vec<Value> {
        self.declaration.maintained_paths().iter().map(|path| Value::from(&**path)).collect()
    }

    /// Its state, also where a write has made it suspect and its document does not tell yet.
    pub fn shown_state(&self) -> &'static str {
        match &self.state {
            PatternState::Active if self.counters.has_kept.load(Ordering::Relaxed) => {
                PatternState::Suspect.name()
            }
            state => state.name(),
        }
    }
}

/// The index that a pattern wants, under a name.
pub(crate) fn spec_of(name: &str, wanted: &WantedIndex) -> Option<IndexSpec> {
    let mut document = doc! {"key": wanted.key.clone(), "name": name};
    wanted.options.iter().for_each(|(option, value)| document.push(option, value));
    IndexSpec::decode(document.as_raw())
}

/// Whether an index does for a pattern what one that it wants would do. One that has more parts behind the wanted ones does
/// as well; one with options of its own must be the very same.
pub(crate) fn serves(index: &Index, wanted: &WantedIndex) -> bool {
    let spec = &index.spec;
    let parts = KeyPart::all_of(wanted.key.as_raw());
    if spec_of("", wanted).is_some_and(|own| without_name(&own) == without_name(spec)) {
        return true;
    }
    wanted.options.is_empty()
        && spec.key.starts_with(&parts)
        && (!wanted.exact || spec.key.len() == parts.len())
        && !spec.sparse
        && !spec.hidden
        && spec.partial.is_none()
        && spec.has_plain_keys()
}

fn without_name(spec: &IndexSpec) -> Document {
    let document = spec.to_document();
    document
        .iter()
        .filter(|(field, _)| *field != "name")
        .map(|(field, value)| (field, value.to_value()))
        .collect()
}

/// What a pattern keeps true it keeps true to the byte, and it finds documents by what they hold.
pub(crate) fn has_collation(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::PatternNotReady,
        format!(
            "{namespace} has a collation of its own, under which patterns cannot find documents: patterns work with \
             collections of the simple collation"
        ),
    )
}

/// Refuses an index over an array that continues in pages if its keys do not follow from single elements, or whose filter asks
/// for the array.
pub(crate) fn check_over_elements(pattern: &Pattern, spec: &IndexSpec) -> Result<()> {
    let Some(paging) = pattern.kind().paging() else { return Ok(()) };
    let refuse = |what: String| {
        let outlier = &pattern.declaration.name;
        let message = format!(
            "the index '{}' of {} {what} of '{}', which continues in pages (outlier '{outlier}')",
            spec.name, pattern.target, paging.field,
        );
        Err(pattern.refusal(ErrorCode::PatternFieldConflict, Some(&paging.field), message))
    };
    let filter_asks = spec.partial.as_ref().is_some_and(|(_, filter)| {
        let mut needed = Dependencies::default();
        filter.dependencies(&mut needed);
        is_needed(&needed, &paging.field)
    });
    if filter_asks {
        return refuse("has a filter that asks for elements".to_owned());
    }
    if !spec.is_over(&paging.field) {
        return Ok(());
    }
    let is_below = |path: &Path| {
        let steps = path.components();
        *steps[0].name == *paging.field && steps[1..].iter().all(|step| step.index.is_none())
    };
    let is_ordered = spec.has_ordered_keys() && spec.key.iter().all(|part| is_below(&part.path));
    if is_ordered && spec.partial.is_none() && !spec.sparse && spec.expire_after_seconds.is_none() {
        return Ok(());
    }
    refuse(format!(
        "has other parts than ascending and descending ones within '{}', or is sparse or partial or expires, and has keys",
        paging.field
    ))
}

/// The refusal to change pages other than with their documents.
pub(crate) fn owned_pages(namespace: &Namespace) -> Error {
    let of = namespace.collection.strip_suffix(".overflow").unwrap_or(&namespace.collection);
    Error::user(
        ErrorCode::CollectionOwnedByPattern,
        format!(
            "{namespace} holds the pages of long arrays of {}.{of}: change the documents there",
            namespace.database
        ),
    )
}

/// Definitions are changed by commands.
pub(crate) fn refuse_change(namespace: &Namespace) -> Error {
    Error::user(
        ErrorCode::CollectionOwnedByPattern,
        format!(
            "{namespace} holds the definitions of patterns: modifyPattern, pausePattern and resumePattern change them, \
             dropPattern ends them"
        ),
    )
}
