//! Updates: a pure function from a before-image to an after-image and the paths it touched.
