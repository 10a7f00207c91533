package deploy_test

const childVariable = "FENCECTL_DEPLOY_CHILD"

func child() int { return 0 }
