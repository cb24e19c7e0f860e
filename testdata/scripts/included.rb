report
def from_included = report
