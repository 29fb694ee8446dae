package launch

// JobFolder creates the folder of a job.
var JobFolder = jobFolder
