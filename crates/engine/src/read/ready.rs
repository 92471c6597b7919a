//! `whileBuilding: "fail"`: reads that need what is not filled yet are refused.
//!
//! A read needs a maintained path where its filter, its sort or its projection names it, or something it lies in or
//! that lies in it; a read without a projection shows whole documents, so it needs every path. A pipeline
//! needs what its stages read, up to the first that makes new documents. A collection that is read beside the first
//! counts as read whole. A write needs what its filter and its sort name.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{lies_within, overlap};
use kilim_query::expression::Dependencies;
use kilim_query::projection::Projection;
use kilim_query::stage::{Beyond, Stage};

use crate::engine::Engine;
use crate::namespace::Namespace;
use crate::plan::{Purpose, ReadRequest};

impl Engine {
    /// Refuses a read that shows documents.
    pub(crate) fn check_read(&self, namespace: &Namespace, request: &ReadRequest) -> Result<()> {
        self.check_paths(namespace, |path| {
            request_names(request, path)
                || match (&request.purpose, &request.distinct, &request.projection) {
                    (Purpose::Count, ..) => false,
                    (_, Some(distinct), _) => overlap(&distinct.path, path),
                    (.., None) => true,
                    (.., Some(projection)) => is_shown(projection, path),
                }
        })
    }

    /// Refuses a write that looks for documents by what is not there yet.
    pub(crate) fn check_search(&self, namespace: &Namespace, request: &ReadRequest) -> Result<()> {
        self.check_paths(namespace, |path| request_names(request, path))
    }

    /// Refuses a pipeline over a collection.
    pub(crate) fn check_pipeline(&self, namespace: &Namespace, stages: &[Stage]) -> Result<()> {
        self.check_paths(namespace, |path| stages_need(stages, path))
    }

    /// Refuses whatever reads a whole collection.
    pub(crate) fn check_whole(&self, namespace: &Namespace) -> Result<()> {
        self.check_paths(namespace, |_| true)
    }

    fn check_paths(&self, namespace: &Namespace, needs: impl Fn(&str) -> bool) -> Result<()> {
        if !self.patterns_withhold() {
            return Ok(());
        }
        let registry = self.patterns();
        for pattern in registry.of(&namespace.database) {
            if pattern.target != *namespace || !pattern.withholds() {
                continue;
            }
            if let Some(path) = pattern.declaration.maintained_paths().iter().find(|path| needs(path)) {
                return Err(Error::user(
                    ErrorCode::PatternNotReady,
                    format!(
                        "'{path}' of {namespace} is not there yet: {} '{}' is {} (whileBuilding: \"fail\"). waitPattern \
                         says when it is, or leave '{path}' out by a projection",
                        pattern.declaration.kind_name,
                        pattern.declaration.name,
                        pattern.state.name()
                    ),
                ));
            }
        }
        Ok(())
    }
}

fn request_names(request: &ReadRequest, path: &str) -> bool {
    let mut needed = Dependencies::default();
    request.filter.dependencies(&mut needed);
    let sorts = request
        .sort
        .as_ref()
        .is_some_and(|sort| sort.parts().iter().any(|part| overlap(part.user_path(), path)));
    sorts || names(&needed, path)
}

fn names(needed: &Dependencies, path: &str) -> bool {
    needed.whole_document || needed.fields.iter().any(|field| overlap(field, path))
}

fn is_shown(projection: &Projection, path: &str) -> bool {
    let mut needed = Dependencies::default();
    match projection.dependencies(&mut needed) {
        Beyond::Nothing => names(&needed, path),
        Beyond::Later => names(&needed, path) || !excludes(projection, path),
    }
}

/// Whether a projection leaves a path out, with all that lies below.
fn excludes(projection: &Projection, path: &str) -> bool {
    fn any(document: kilim_bson::RawDocument<'_>, prefix: &str, path: &str) -> bool {
        document.iter().any(|(name, value)| {
            let own = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
            match value {
                RawValue::Bool(false) => lies_within(path, &own),
                RawValue::Document(nested) => any(nested, &own, path),
                _ => false,
            }
        })
    }
    any(projection.to_document().as_raw(), "", path)
}

fn stages_need(stages: &[Stage], path: &str) -> bool {
    for stage in stages {
        let mut needed = Dependencies::default();
        let beyond = stage.behaviour().dependencies(&mut needed);
        if names(&needed, path) {
            return true;
        }
        let leaves_out = matches!(stage, Stage::Project(stage) if excludes(&stage.projection, path));
        if beyond == Beyond::Nothing || leaves_out {
            return false;
        }
    }
    true
}
