// What a learner answers in place of a result: the names are those of melisma.errors and
// fleets.messages, by which the orchestrator tells who is to blame.

const named = (name) =>
  class extends Error {
    name = name;
  };

/** An order that no correct orchestrator gives, or that a browser cannot do. */
export const ConfigError = named("ConfigError");
/** Data that is not what was asked for. */
export const DataError = named("DataError");
/** Work that nobody waits for any more. */
export const TrainingError = named("TrainingError");
/** No such task or cycle: this page was loaded again since it was ready. */
export const Unprepared = named("Unprepared");
/** Not the memory for the work, which is no fault of the learner's. */
export const ShortOfMemory = named("ShortOfMemory");
