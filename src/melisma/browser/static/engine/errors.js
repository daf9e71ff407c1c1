// Errors by the names that the Python learner gives them.

function named(name) {
  return (message) => Object.assign(new Error(message), { name });
}

export const configError = named("ConfigError"); // what a job asks for is not there
export const dataError = named("DataError"); // what came does not fit the task
export const shortOfMemory = named("ShortOfMemory");

export function check(claim, message, error = configError) {
  if (!claim) throw error(message);
}
