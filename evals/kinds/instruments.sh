#!/bin/sh
# Answers one job of a kind of kinds.yaml: its first argument is the kind, and the job is a line of JSON on stdin.
read -r job

says() {
  printf '{"result": {"said": "%s"}}\n' "$1"
}

knows() {
  case $job in
    *"\"$1\""*) says "$2" && exit ;;
  esac
}

case $1 in
  measure_tide)
    knows Harlingen "The water at Harlingen is 0.95 m high."
    knows Vlissingen "The water at Vlissingen is 1.83 m high."
    knows Delfzijl "The water at Delfzijl is 2.47 m high."
    ;;
  check_account)
    knows travel "The account travel has a balance of 88.10 CHF."
    knows savings "The account savings has a balance of 1,960.40 CHF."
    knows rent "The account rent has a balance of 412.50 CHF."
    ;;
  count_blocks) says "The mounted disk has 1874 free blocks." && exit ;;
  ask_queue) says "37 messages wait in the queue." && exit ;;
  test_lamp)
    knows L4 "Lamp L4 has answered since 20:58."
    knows L7 "Lamp L7 has not answered since 04:12."
    knows L2 "Lamp L2 has answered since 21:05."
    ;;
  find_sighting)
    knows curlew "The curlew was last seen on 27 April at North Creek."
    knows avocet "The avocet was last seen on 9 May at Old Sluice."
    knows redshank "The redshank was last seen on 2 June at Grey Ditch."
    ;;
esac
echo '{"error": "nothing is known of that"}'
